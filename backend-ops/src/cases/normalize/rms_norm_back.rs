//! `RMS_NORM_BACK`: the gradient of RMS_NORM. Upstream's `test_rms_norm_back`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One RMS_NORM_BACK case.
#[derive(Clone, Debug)]
pub struct RmsNormBack {
    ne: [usize; 4],
    eps: f32,
    /// Ours: operands with dims 1 and 2 exchanged in memory.
    permuted: bool,
}

impl Case for RmsNormBack {
    fn op(&self) -> &'static str {
        "RMS_NORM_BACK"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("eps", self.eps)
            .with_unless_default("permuted", self.permuted, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        ["a", "b"]
            .map(|name| Operand::new(name, DType::F32, self.ne).within(10.0))
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (mut a, mut b) = (leaves[0], leaves[1]);
        if self.permuted {
            a = a.permute([0, 2, 1, 3])?;
            b = b.permute([0, 2, 1, 3])?;
        }
        a.rms_norm_back(b, self.eps)
    }
}

/// Upstream's.
pub(super) fn cases() -> Vec<RmsNormBack> {
    let mut cases = Vec::new();
    for eps in [0.0, 1e-6, 1e-4, 1e-1, 10.0] {
        cases.extend([64, 1025].map(|n| RmsNormBack {
            ne: [n, 5, 4, 3],
            eps,
            permuted: false,
        }));
    }
    cases
}

/// Ragged rows, and permuted operands. The result for a row of one element is all `eps`: a small one would leave rounding alone.
pub(super) fn ours() -> Vec<RmsNormBack> {
    [1, 2, 31, 33, 127, 130]
        .into_iter()
        .flat_map(|n| {
            [false, true].map(|permuted| RmsNormBack {
                ne: [n, 3, 2, 2],
                eps: 0.1,
                permuted,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[2].name(),
            "RMS_NORM_BACK(type=f32,ne=[64,5,4,3],eps=0.000001)"
        );
    }
}
