//! `IM2COL_BACK`: patches added up to an image again. Upstream reaches it only through gradients.

use ggml_rs::{Conv1d, Conv2d, DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Im2colBack {
    /// Type of the kernel, which gives nothing but its shape.
    pub type_kernel: DType,
    /// Shape of the image.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Steps.
    pub stride: [usize; 2],
    /// Zeros around the image.
    pub padding: [usize; 2],
    /// Distances of the kernel's elements.
    pub dilation: [usize; 2],
    /// Two dimensions, not one.
    pub is_2d: bool,
}

impl Im2colBack {
    /// How many patches there are along a dimension.
    fn outputs(&self, dim: usize) -> usize {
        super::outputs(
            self.ne_input[dim],
            self.ne_kernel[dim],
            [self.stride, self.padding, self.dilation].map(|x| x[dim]),
        )
    }

    fn patches(&self) -> [usize; 4] {
        let [kw, kh, kc, _] = self.ne_kernel;
        let [_, _, images_1d, images] = self.ne_input;
        match self.is_2d {
            true => [kw * kh * kc, self.outputs(0), self.outputs(1), images],
            false => [kw * kh, self.outputs(0), images_1d, 1],
        }
    }
}

impl Case for Im2colBack {
    fn op(&self) -> &'static str {
        "IM2COL_BACK"
    }

    fn params(&self) -> String {
        let ([s0, s1], [p0, p1], [d0, d1]) = (self.stride, self.padding, self.dilation);
        Vars::new()
            .with("type_kernel", self.type_kernel)
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("s0", s0)
            .with("s1", s1)
            .with("p0", p0)
            .with("p1", p1)
            .with("d0", d0)
            .with("d1", d1)
            .with("is_2D", self.is_2d)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("grad", DType::F32, self.patches()),
            Operand::new("kernel", self.type_kernel, self.ne_kernel),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne_input
                .iter_mut()
                .chain(&mut case.ne_kernel)
                .collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (grad, kernel) = (leaves[0], leaves[1]);
        if self.is_2d {
            let options = Conv2d::default()
                .stride(self.stride)
                .padding(self.padding)
                .dilation(self.dilation);
            return grad.im2col_back(kernel, self.ne_input, options);
        }
        let options = Conv1d::default()
            .stride([self.stride[0]])
            .padding([self.padding[0]])
            .dilation([self.dilation[0]]);
        grad.im2col_1d_back(kernel, self.ne_input, options)
    }
}

/// All are ours.
pub(super) fn cases() -> Vec<Im2colBack> {
    let mut cases = Vec::new();
    for type_kernel in [DType::F32, DType::F16] {
        let plane = |ne_input, ne_kernel, stride, padding, dilation| Im2colBack {
            type_kernel,
            ne_input,
            ne_kernel,
            stride,
            padding,
            dilation,
            is_2d: true,
        };
        cases.push(plane([10, 10, 3, 1], [3, 3, 3, 1], [1, 1], [1, 1], [1, 1]));
        cases.push(plane([20, 17, 2, 2], [3, 2, 2, 2], [3, 1], [0, 2], [1, 2]));
        cases.push(plane([33, 7, 1, 3], [2, 3, 1, 5], [1, 2], [3, 0], [3, 1]));
        // Steps beyond the kernel: some pixels belong to no patch.
        cases.push(plane([16, 16, 2, 1], [2, 2, 2, 1], [3, 3], [0, 0], [1, 1]));
        cases.push(plane([1; 4], [1; 4], [1, 1], [0, 0], [1, 1]));
        for [s0, p0, d0] in [[1, 1, 1], [2, 0, 3]] {
            cases.push(Im2colBack {
                type_kernel,
                ne_input: [31, 4, 2, 1],
                ne_kernel: [3, 4, 5, 1],
                stride: [s0, 0],
                padding: [p0, 0],
                dilation: [d0, 0],
                is_2d: false,
            });
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_like_those_of_im2col() {
        assert_eq!(
            cases()[0].name(),
            "IM2COL_BACK(type_kernel=f32,ne_input=[10,10,3,1],ne_kernel=[3,3,3,1],s0=1,s1=1,p0=1,p1=1,d0=1,d1=1,is_2D=1)"
        );
    }
}
