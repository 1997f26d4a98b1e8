//! `CONV_TRANSPOSE_1D`. Upstream's `test_conv_transpose_1d`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case. ggml takes no padding and no dilation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose1d {
    /// Shape of the signal.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Elements of the result from element to element of the signal.
    pub s0: usize,
    /// Type of the kernel.
    pub type_kernel: DType,
    /// How the signal lies in memory.
    pub layout: Layout,
}

impl Case for ConvTranspose1d {
    fn op(&self) -> &'static str {
        "CONV_TRANSPOSE_1D"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("s0", self.s0)
            .with("p0", 0)
            .with("d0", 1)
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
        leaves[1].conv_transpose_1d(self.layout.view(leaves[0])?, self.s0)
    }

    /// With a kernel in half precision the CPU rounds the signal to it: 2^-22 of the square of each product, at most.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.type_kernel == DType::F32 {
            1e-7
        } else {
            1e-6
        }
    }
}

/// All.
pub(super) fn cases() -> Vec<ConvTranspose1d> {
    let case = |[length, channels]: [usize; 2], [k, outputs]: [usize; 2], s0| ConvTranspose1d {
        ne_input: [length, channels, 1, 1],
        ne_kernel: [k, outputs, channels, 1],
        s0,
        type_kernel: DType::F32,
        layout: Layout::Plain,
    };
    let mut cases = Vec::new();
    for [outputs, channels] in [[1, 1], [1, 7], [9, 1], [9, 7]] {
        for k in [1, 3, 1337] {
            for length in [1, 2, 13] {
                cases.extend([1, 2, 3].map(|s0| case([length, channels], [k, outputs], s0)));
            }
        }
    }
    cases.push(case([197, 32], [16, 32], 1));
    cases.extend([3, 2, 1].map(|s0| case([3, 2], [2, 3], s0)));
    cases.extend([2, 1].map(|s0| case([3, 2], [3, 2], s0)));
    cases.push(case([3, 2], [3, 1], 1));
    cases.push(case([2, 1], [3, 1], 1));

    // Ours: kernels in half precision, steps beyond the kernel, views.
    for type_kernel in [DType::F32, DType::F16] {
        for ours in [
            case([33, 31], [5, 33], 2),
            case([7, 3], [2, 5], 7),
            case([1, 1], [1, 1], 1),
        ] {
            cases.push(ConvTranspose1d {
                type_kernel,
                ..ours
            });
        }
    }
    cases.extend(Layout::OTHERS.map(|layout| ConvTranspose1d {
        layout,
        ..case([33, 7], [3, 5], 2)
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[108].name(),
            "CONV_TRANSPOSE_1D(ne_input=[197,32,1,1],ne_kernel=[16,32,32,1],s0=1,p0=0,d0=1)"
        );
    }
}
