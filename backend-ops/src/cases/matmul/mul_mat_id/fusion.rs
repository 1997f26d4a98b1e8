//! MUL_MAT_ID with what backends fuse to it, `MUL_MAT_ID_FUSION`: sums of products with several experts' matrices, and a product
//! with a weight for each token's expert. Upstream's `test_mul_mat_id_fusion`.

use ggml_rs::{DType, Tensor};

use super::{ids, used};
use crate::case::{Case, Choices, Gradient, Leaves};
use crate::data::Operand;
use crate::vars::Vars;

/// One MUL_MAT_ID_FUSION case.
#[derive(Clone, Debug)]
pub struct MulMatIdFusion {
    type_a: DType,
    n_mats: usize,
    n_used: usize,
    m: usize,
    n: usize,
    k: usize,
    /// Products that are added up.
    o: usize,
    /// Whether the sum is multiplied with weights.
    mul: bool,
}

impl MulMatIdFusion {
    /// One product, as upstream measures it.
    pub(crate) fn of_one(
        type_a: DType,
        [n_mats, n_used]: [usize; 2],
        [m, n, k]: [usize; 3],
    ) -> Self {
        Self {
            type_a,
            n_mats,
            n_used,
            m,
            n,
            k,
            o: 1,
            mul: false,
        }
    }
}

/// Names of the experts' matrices.
const MATRICES: [&str; 3] = ["a", "a1", "a2"];

impl Case for MulMatIdFusion {
    fn op(&self) -> &'static str {
        "MUL_MAT_ID_FUSION"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_a", self.type_a)
            .with("type_b", DType::F32)
            .with("n_mats", self.n_mats)
            .with("n_used", self.n_used)
            .with("b", false)
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("o", self.o)
            .with("mul", self.mul)
            .to_string()
    }

    /// The ids, the tokens, the matrices, and the weights.
    fn operands(&self) -> Vec<Operand> {
        let matrices = [self.k, self.m, self.n_mats, 1];
        let mut operands = vec![
            ids([self.n_mats, self.n]),
            Operand::new("b", DType::F32, [self.k, self.n_used, self.n, 1]),
        ];
        operands.extend(
            MATRICES[..self.o]
                .iter()
                .map(|name| Operand::new(name, self.type_a, matrices)),
        );
        if self.mul {
            operands.push(Operand::new("m", DType::F32, [1, self.n_used, self.n, 1]));
        }
        operands
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let ids = used(leaves.rows(0), self.n_used)?;
        let product = |place: usize| leaves[2 + place].mul_mat_id(leaves[1], ids);
        let mut out = product(0)?;
        for place in 1..self.o {
            out = out.add(product(place)?)?;
        }
        match self.mul {
            true => out.mul(leaves[2 + self.o]),
            false => Ok(out),
        }
    }

    /// The gradient of the weights is the product itself.
    fn gradient(&self) -> Gradient {
        Gradient::of_product(self.type_a)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-4
    }

    fn flops(&self) -> Option<f64> {
        Some(2.0 * (self.m * self.k * self.n * self.n_used) as f64)
    }

    fn is_fusion(&self) -> bool {
        true
    }
}

/// Upstream's: three outputs, and a mixture's last layer.
pub fn cases() -> Vec<MulMatIdFusion> {
    let mut cases = vec![MulMatIdFusion {
        type_a: DType::F16,
        n_mats: 16,
        n_used: 16,
        m: 32,
        n: 32,
        k: 32,
        o: 3,
        mul: false,
    }];
    for n in [1, 4, 512] {
        for type_a in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K] {
            cases.push(MulMatIdFusion {
                type_a,
                n_mats: 128,
                n_used: 8,
                m: 768,
                n,
                k: 2048,
                o: 1,
                mul: true,
            });
        }
    }
    cases
}

/// The same fusions at sizes that a simulated device runs quickly.
pub fn ours() -> Vec<MulMatIdFusion> {
    let mut cases = Vec::new();
    for type_a in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K] {
        for n in [1, 4, 33] {
            for (o, mul) in [(1, true), (2, true), (2, false)] {
                cases.push(MulMatIdFusion {
                    type_a,
                    n_mats: 8,
                    n_used: 4,
                    m: 67,
                    n,
                    k: 256,
                    o,
                    mul,
                });
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[1].name(),
            "MUL_MAT_ID_FUSION(type_a=f32,type_b=f32,n_mats=128,n_used=8,b=0,m=768,n=1,k=2048,o=1,mul=1)"
        );
    }
}
