//! `SSM_CONV`, upstream's `test_ssm_conv`, and what backends fuse it with, `test_ssm_conv_bias_silu`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves};
use crate::data::Operand;
use crate::vars::Vars;

/// What follows the convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// SILU, perhaps of the sum with a bias.
    Silu {
        /// Whether there is a bias.
        fuse_bias: bool,
    },
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct SsmConv {
    /// Type of all.
    pub dtype: DType,
    /// Shape of the inputs: kernel - 1 + tokens, channels, sequences.
    pub ne_a: [usize; 4],
    /// Shape of the kernel.
    pub ne_b: [usize; 4],
    /// What follows.
    pub then: Then,
    /// How the inputs lie in memory.
    pub layout: Layout,
}

impl Case for SsmConv {
    fn op(&self) -> &'static str {
        match self.then {
            Then::Nothing => "SSM_CONV",
            Then::Silu { .. } => "SSM_CONV_BIAS_SILU",
        }
    }

    fn params(&self) -> String {
        let mut vars = Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("ne_b", self.ne_b);
        if let Then::Silu { fuse_bias } = self.then {
            vars = vars.with("fuse_bias", fuse_bias);
        }
        vars.with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![
            self.layout.stored(Operand::new("a", self.dtype, self.ne_a)),
            Operand::new("b", self.dtype, self.ne_b),
        ];
        if self.then == (Then::Silu { fuse_bias: true }) {
            operands.push(Operand::new("bias", self.dtype, [self.ne_b[1], 1, 1, 1]));
        }
        operands
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let out = self.layout.view(leaves[0])?.ssm_conv(leaves[1])?;
        match self.then {
            Then::Nothing => Ok(out),
            Then::Silu { fuse_bias: false } => out.silu(),
            Then::Silu { fuse_bias: true } => out.add(leaves[2])?.silu(),
        }
    }

    fn is_fusion(&self) -> bool {
        self.then != Then::Nothing
    }
}

const KERNELS: [usize; 3] = [3, 4, 9];
const CHANNELS: [usize; 3] = [1024, 1536, 2048];

/// The single op.
pub(super) fn cases() -> Vec<SsmConv> {
    let mut cases = Vec::new();
    for k in KERNELS {
        cases.extend(CHANNELS.iter().flat_map(|&n| sizes(k, n, Then::Nothing)));
    }
    cases.extend(ours());
    cases
}

/// The fusions.
pub(super) fn fused_cases() -> Vec<SsmConv> {
    let mut cases = Vec::new();
    for k in KERNELS {
        for n in CHANNELS {
            for fuse_bias in [false, true] {
                cases.extend(sizes(k, n, Then::Silu { fuse_bias }));
            }
        }
    }
    cases
}

/// One token, some tokens, several sequences, and more tokens than 32, which kernels compute in blocks.
fn sizes(k: usize, n: usize, then: Then) -> [SsmConv; 5] {
    [[k, 1], [2 * k, 1], [k, 4], [k + 63, 1], [k + 63, 4]].map(|[row, sequences]| SsmConv {
        dtype: DType::F32,
        ne_a: [row, n, sequences, 1],
        ne_b: [k, n, 1, 1],
        then,
        layout: Layout::Plain,
    })
}

fn ours() -> Vec<SsmConv> {
    let case = |tokens: usize, k: usize, n: usize, sequences: usize| SsmConv {
        dtype: DType::F32,
        ne_a: [k - 1 + tokens, n, sequences, 1],
        ne_b: [k, n, 1, 1],
        then: Then::Nothing,
        layout: Layout::Plain,
    };
    let mut cases = vec![
        case(1, 1, 1, 1),
        case(31, 2, 33, 1),
        case(32, 5, 31, 3),
        case(33, 4, 7, 2),
        case(257, 4, 5, 2),
    ];
    cases.extend(Layout::OTHERS.map(|layout| SsmConv {
        layout,
        ..case(9, 4, 6, 2)
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[3].name(),
            "SSM_CONV(type=f32,ne_a=[66,1024,1,1],ne_b=[3,1024,1,1])"
        );
        assert_eq!(
            fused_cases()[5].name(),
            "SSM_CONV_BIAS_SILU(type=f32,ne_a=[3,1024,1,1],ne_b=[3,1024,1,1],fuse_bias=1)"
        );
    }
}
