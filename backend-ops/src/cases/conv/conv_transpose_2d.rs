//! `CONV_TRANSPOSE_2D`. Upstream's `test_conv_transpose_2d`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, Relaxation, relaxed, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose2d {
    /// Type of the kernel.
    pub kernel_type: DType,
    /// Shape of the image.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Elements of the result from element to element of the image.
    pub stride: usize,
    /// How the image lies in memory.
    pub layout: Layout,
}

impl Case for ConvTranspose2d {
    fn op(&self) -> &'static str {
        "CONV_TRANSPOSE_2D"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("kernel_type", self.kernel_type)
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("stride", self.stride)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            self.layout
                .stored(Operand::new("input", DType::F32, self.ne_input)),
            Operand::new("kernel", self.kernel_type, self.ne_kernel),
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
        leaves[1].conv_transpose_2d_p0(self.layout.view(leaves[0])?, self.stride)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-4
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let packed = Self {
            layout: Layout::Plain,
            ..self.clone()
        };
        relaxed(self, [(self.layout.left_out("the image"), packed)])
    }
}

/// All.
pub(super) fn cases() -> Vec<ConvTranspose2d> {
    let mut cases = Vec::new();
    for kernel_type in [DType::F32, DType::F16] {
        let case = |ne_input, ne_kernel, stride| ConvTranspose2d {
            kernel_type,
            ne_input,
            ne_kernel,
            stride,
            layout: Layout::Plain,
        };
        cases.push(case([3, 2, 3, 1], [2, 2, 1, 3], 1));
        cases.push(case([10, 10, 9, 1], [3, 3, 1, 9], 2));
        cases.push(case([129, 63, 35, 1], [3, 3, 48, 35], 1));
        // Ours: several images, gaps between the kernels' places, a kernel of more elements than a threadgroup has threads.
        cases.push(case([7, 5, 3, 2], [2, 3, 5, 3], 1));
        cases.push(case([5, 4, 2, 3], [2, 2, 3, 2], 5));
        cases.push(case([2, 3, 2, 1], [33, 32, 1, 2], 1));
        cases.push(case([1; 4], [1; 4], 1));
        cases.extend(Layout::OTHERS.map(|layout| ConvTranspose2d {
            layout,
            ..case([9, 7, 3, 2], [3, 2, 2, 3], 2)
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "CONV_TRANSPOSE_2D(kernel_type=f32,ne_input=[3,2,3,1],ne_kernel=[2,2,1,3],stride=1)"
        );
    }
}
