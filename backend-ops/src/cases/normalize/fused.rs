//! Norms with what models put around them, which backends run as one kernel: `NORM_MUL_ADD`, `RMS_NORM_MUL_ADD` and
//! `ADD_RMS_NORM`. Upstream's `test_norm_mul_add`, `test_rms_norm_mul_add` and `test_add_rms_norm`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Gradient, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// Which chain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Chain {
    /// Two ADD, NORM, MUL, ADD.
    NormMulAdd,
    /// Two ADD, or four with `multi_add`, RMS_NORM, MUL, ADD.
    RmsNormMulAdd { multi_add: bool },
    /// ADD, RMS_NORM.
    AddRmsNorm,
}

/// One fused norm.
#[derive(Clone, Debug)]
pub struct FusedNorm {
    chain: Chain,
    ne: [usize; 4],
    eps: f32,
    /// Whether the normalized tensor is larger than the others, which are repeated.
    broadcast: bool,
}

impl FusedNorm {
    /// How often the other operands are repeated where they are.
    fn repeats(&self) -> [usize; 4] {
        match (self.broadcast, self.chain) {
            (false, _) => [1; 4],
            (true, Chain::NormMulAdd) => [1, 2, 2, 2],
            (true, _) => [2, 3, 3, 4],
        }
    }
}

impl Case for FusedNorm {
    fn op(&self) -> &'static str {
        match self.chain {
            Chain::NormMulAdd => "NORM_MUL_ADD",
            Chain::RmsNormMulAdd { .. } => "RMS_NORM_MUL_ADD",
            Chain::AddRmsNorm => "ADD_RMS_NORM",
        }
    }

    fn params(&self) -> String {
        let vars = Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("eps", self.eps)
            .with("broadcast", self.broadcast);
        match self.chain {
            Chain::RmsNormMulAdd { multi_add } => vars.with("multi_add", multi_add),
            _ => vars,
        }
        .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let range = if self.chain == Chain::NormMulAdd {
            1.0
        } else {
            10.0
        };
        let operand = |name, ne| Operand::new(name, DType::F32, ne).within(range).trained();
        let repeats = self.repeats();
        let larger = [0, 1, 2, 3].map(|d| self.ne[d] * repeats[d]);
        let mut operands = vec![operand("a", larger), operand("b", self.ne)];
        if self.chain != Chain::AddRmsNorm {
            operands.push(operand("c", self.ne));
        }
        operands
    }

    /// As for the norms alone: rows of few elements hardly change.
    fn gradient(&self) -> Gradient {
        Gradient::default().floor(0.1)
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (a, b) = (leaves[0], leaves[1]);
        if self.chain == Chain::AddRmsNorm {
            return a.add(b)?.rms_norm(self.eps);
        }
        // The sums keep the norm from reading a leaf.
        let c = leaves[2];
        let mut sum = a.add(b)?.add(c)?;
        if self.chain == (Chain::RmsNormMulAdd { multi_add: true }) {
            sum = sum.add(b)?.add(c)?;
        }
        let normalized = match self.chain {
            Chain::NormMulAdd => sum.norm(self.eps)?,
            _ => sum.rms_norm(self.eps)?,
        };
        normalized.mul(b)?.add(c)
    }

    fn is_fusion(&self) -> bool {
        true
    }
}

/// Upstream's: whole and repeated operands, then single rows up to many threadgroups' length.
pub(super) fn cases() -> Vec<FusedNorm> {
    const PLAIN: Chain = Chain::RmsNormMulAdd { multi_add: false };
    const SUMS: Chain = Chain::RmsNormMulAdd { multi_add: true };
    let mut cases = Vec::new();
    for eps in [0.0, 1e-6, 1e-4, 1e-1, 1.0] {
        for n in [64, 1025] {
            for chain in [PLAIN, Chain::NormMulAdd, Chain::AddRmsNorm] {
                cases.extend([false, true].map(|broadcast| FusedNorm {
                    chain,
                    ne: [n, 5, 4, 3],
                    eps,
                    broadcast,
                }));
            }
        }
    }
    for n in [1, 511, 1025, 8192, 33 * 512] {
        cases.extend([PLAIN, SUMS, Chain::AddRmsNorm].map(|chain| FusedNorm {
            chain,
            ne: [n, 1, 1, 1],
            eps: 1e-6,
            broadcast: false,
        }));
    }
    cases
}

/// Rows around the widths of vectors and simdgroups.
pub(super) fn ours() -> Vec<FusedNorm> {
    let mut cases = Vec::new();
    for n in [1, 3, 31, 32, 33, 100] {
        for chain in [
            Chain::NormMulAdd,
            Chain::RmsNormMulAdd { multi_add: true },
            Chain::AddRmsNorm,
        ] {
            cases.extend([false, true].map(|broadcast| FusedNorm {
                chain,
                ne: [n, 3, 2, 1],
                eps: 1e-5,
                broadcast,
            }));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(Case::name).collect();
        assert_eq!(
            names[0],
            "RMS_NORM_MUL_ADD(type=f32,ne=[64,5,4,3],eps=0.000000,broadcast=0,multi_add=0)"
        );
        assert_eq!(
            names[3],
            "NORM_MUL_ADD(type=f32,ne=[64,5,4,3],eps=0.000000,broadcast=1)"
        );
        assert_eq!(
            names[4],
            "ADD_RMS_NORM(type=f32,ne=[64,5,4,3],eps=0.000000,broadcast=0)"
        );
    }
}
