//! `CONV_2D`: a convolution as one op. Upstream's `test_conv_2d`.

use ggml_rs::{Conv2d, DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2dDirect {
    /// Shape of the image.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Type of the kernel.
    pub type_kernel: DType,
    /// Steps.
    pub stride: [usize; 2],
    /// Zeros around the image.
    pub padding: [usize; 2],
    /// Distances of the kernel's elements.
    pub dilation: [usize; 2],
    /// Whether channels lie next to each other in memory.
    pub cwhn: bool,
    /// How the image lies in memory.
    pub layout: Layout,
}

impl Conv2dDirect {
    fn outputs(&self, dim: usize) -> usize {
        super::outputs(
            self.ne_input[dim],
            self.ne_kernel[dim],
            [self.stride, self.padding, self.dilation].map(|x| x[dim]),
        )
    }
}

impl Case for Conv2dDirect {
    fn op(&self) -> &'static str {
        "CONV_2D"
    }

    fn params(&self) -> String {
        let ([s0, s1], [p0, p1], [d0, d1]) = (self.stride, self.padding, self.dilation);
        Vars::new()
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("type_kernel", self.type_kernel)
            .with("stride0", s0)
            .with("stride1", s1)
            .with("padding0", p0)
            .with("padding1", p1)
            .with("dilation0", d0)
            .with("dilation1", d1)
            .with("cwhn", self.cwhn)
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

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (mut input, mut kernel) = (self.layout.view(leaves[0])?, leaves[1]);
        if self.cwhn {
            (input, kernel) = super::by_channel(input, kernel)?;
        }
        let options = Conv2d::default()
            .stride(self.stride)
            .padding(self.padding)
            .dilation(self.dilation);
        kernel.conv_2d_direct(input, options)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-4
    }

    /// As upstream counts them, but for the height, which upstream computes with the strides of the width.
    fn flops(&self) -> Option<f64> {
        let [kw, kh, channels, outputs] = self.ne_kernel;
        let positions = self.outputs(0) * self.outputs(1) * self.ne_input[3];
        Some((outputs * positions * (2 * kw * kh * channels - 1)) as f64)
    }
}

/// All.
pub(super) fn cases() -> Vec<Conv2dDirect> {
    let mut cases = grid();
    for type_kernel in [DType::F32, DType::F16] {
        cases.push(Conv2dDirect {
            ne_input: [256, 256, 192, 1],
            ne_kernel: [3, 3, 192, 96],
            type_kernel,
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            cwhn: false,
            layout: Layout::Plain,
        });
    }
    cases.extend(ours());
    cases
}

fn grid() -> Vec<Conv2dDirect> {
    const KERNELS: [usize; 4] = [1, 2, 3, 11];
    let mut cases = Vec::new();
    for s0 in [1, 3] {
        for p1 in [2, 5] {
            for [channels, outputs] in [[1, 1], [1, 12], [25, 1], [25, 12]] {
                for [kh, kw] in KERNELS.iter().flat_map(|&h| KERNELS.map(|w| [h, w])) {
                    for [h, w] in [[1, 1], [1, 141], [133, 1], [133, 141]] {
                        cases.extend(both(
                            [w, h, channels, 2],
                            [kw, kh, channels, outputs],
                            [s0, 5],
                            [5, p1],
                        ));
                    }
                }
            }
        }
    }
    cases
}

/// With kernels of both types; nothing where ggml finds no output. It finds one where a kernel misses the image by less than
/// a step: ggml-rs refuses those.
fn both(
    ne_input: [usize; 4],
    ne_kernel: [usize; 4],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Vec<Conv2dDirect> {
    let dilation = [2, 4];
    let found = |dim: usize| {
        let rest = (ne_input[dim] + 2 * padding[dim]) as i64
            - (dilation[dim] * (ne_kernel[dim] - 1) + 1) as i64;
        rest / stride[dim] as i64 + 1 > 0
    };
    if !found(0) || !found(1) {
        return Vec::new();
    }
    [DType::F32, DType::F16]
        .map(|type_kernel| Conv2dDirect {
            ne_input,
            ne_kernel,
            type_kernel,
            stride,
            padding,
            dilation,
            cwhn: false,
            layout: Layout::Plain,
        })
        .into()
}

fn ours() -> Vec<Conv2dDirect> {
    let mut cases = Vec::new();
    for type_kernel in [DType::F32, DType::F16] {
        let ragged = Conv2dDirect {
            // As many values as a product of the CPU packs, in the work buffer that holds the patches.
            ne_input: [33, 7, 7, 2],
            ne_kernel: [3, 2, 7, 31],
            type_kernel,
            stride: [2, 1],
            padding: [1, 3],
            dilation: [1, 2],
            cwhn: false,
            layout: Layout::Plain,
        };
        cases.extend(Layout::OTHERS.map(|layout| Conv2dDirect {
            layout,
            ..ragged.clone()
        }));
        cases.push(ragged.clone());
        cases.push(Conv2dDirect {
            cwhn: true,
            ..ragged.clone()
        });
        cases.push(Conv2dDirect {
            ne_input: [1; 4],
            ne_kernel: [1; 4],
            padding: [0, 0],
            ..ragged
        });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            grid()[0].name(),
            "CONV_2D(ne_input=[1,1,1,2],ne_kernel=[1,1,1,1],type_kernel=f32,stride0=1,stride1=5,padding0=5,padding1=2,\
             dilation0=2,dilation1=4,cwhn=0)"
        );
    }
}
