//! `CONV_2D_DW`: a kernel for each channel. Upstream's `test_conv_2d_dw`.

use ggml_rs::{Conv2d, DType, Tensor};

use crate::case::{Case, Layout, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2dDw {
    /// Shape of the image.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Steps.
    pub stride: usize,
    /// Zeros around the image.
    pub padding: usize,
    /// Distances of the kernel's elements.
    pub dilation: usize,
    /// Whether channels lie next to each other in memory.
    pub cwhn: bool,
    /// Type of the kernel.
    pub type_kernel: DType,
    /// How the image lies in memory.
    pub layout: Layout,
}

impl Case for Conv2dDw {
    fn op(&self) -> &'static str {
        "CONV_2D_DW"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("stride", self.stride)
            .with("padding", self.padding)
            .with("dilation", self.dilation)
            .with("cwhn", self.cwhn)
            .with_unless_default("type_kernel", self.type_kernel, DType::F32)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            self.layout
                .stored(Operand::new("input", DType::F32, self.ne_input)),
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
        let (mut input, mut kernel) = (self.layout.view(leaves[0])?, leaves[1]);
        if self.cwhn {
            (input, kernel) = super::by_channel(input, kernel)?;
        }
        let options = Conv2d::default()
            .stride([self.stride; 2])
            .padding([self.padding; 2])
            .dilation([self.dilation; 2]);
        let out = kernel.conv_2d_dw_direct(input, options)?;
        // Where the image's channels lie next to each other the result's do, and a result is read in ne order.
        match out.is_contiguous() {
            true => Ok(out),
            false => out.cont(),
        }
    }
}

/// All.
pub(super) fn cases() -> Vec<Conv2dDw> {
    let square =
        |[w, h, channels, images]: [usize; 4], [stride, padding, dilation]: [usize; 3]| Conv2dDw {
            ne_input: [w, h, channels, images],
            ne_kernel: [3, 3, 1, channels],
            stride,
            padding,
            dilation,
            cwhn: false,
            type_kernel: DType::F32,
            layout: Layout::Plain,
        };
    let upstream = [
        square([17, 34, 9, 1], [1, 0, 1]),
        square([32, 8, 64, 1], [2, 1, 1]),
    ];
    let mut cases = Vec::new();
    for case in upstream {
        cases.push(case.clone());
        cases.push(Conv2dDw { cwhn: true, ..case });
    }
    // Ours: several images, dilation, kernels in half precision, views.
    for type_kernel in [DType::F32, DType::F16] {
        for cwhn in [false, true] {
            for case in [
                square([33, 7, 31, 2], [1, 2, 3]),
                square([3, 3, 1, 1], [1, 0, 1]),
            ] {
                cases.push(Conv2dDw {
                    type_kernel,
                    cwhn,
                    ..case
                });
            }
        }
    }
    cases.extend(Layout::OTHERS.map(|layout| Conv2dDw {
        layout,
        ..square([17, 9, 5, 2], [2, 1, 1])
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[1].name(),
            "CONV_2D_DW(ne_input=[17,34,9,1],ne_kernel=[3,3,1,9],stride=1,padding=0,dilation=1,cwhn=1)"
        );
    }
}
