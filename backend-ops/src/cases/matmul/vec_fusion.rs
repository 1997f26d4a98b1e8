//! Products of one token with what backends fuse to them, `MUL_MAT_VEC_FUSION`: biases, a gate, and a sum or weights at the end.
//! Upstream's `test_mul_mat_vec_fusion`.

use ggml_rs::graph::GluOp;
use ggml_rs::{DType, ExpertIds, Tensor};

use super::mul_mat_id::{ids, used};
use crate::case::{Case, Choices, Gradient, Leaves, smaller};
use crate::cases::types;
use crate::data::Operand;
use crate::vars::Vars;

/// One MUL_MAT_VEC_FUSION case.
#[derive(Clone, Debug)]
pub struct VecFusion {
    dtype: DType,
    glu: Glu,
    /// Tokens, rows of the weights, length of a row.
    m: usize,
    n: usize,
    k: usize,
    experts: Option<Experts>,
    with_bias: bool,
    with_gate: bool,
    /// Dims 2 and 3, without experts.
    batch_dims: [usize; 2],
}

/// The function of the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Glu {
    Swiglu,
    Geglu,
}

impl Glu {
    fn op(self) -> GluOp {
        match self {
            Self::Swiglu => GluOp::Swiglu,
            Self::Geglu => GluOp::Geglu,
        }
    }

    /// ggml's number.
    fn number(self) -> i32 {
        match self {
            Self::Swiglu => 2,
            Self::Geglu => 1,
        }
    }
}

/// A product with experts' matrices.
#[derive(Clone, Copy, Debug)]
struct Experts {
    /// Whether a token's experts share its row.
    share_rows: bool,
}

/// Experts, and how many of them a token uses. Upstream prints them without experts as well.
const N_MATS: usize = 16;
const N_USED: usize = 8;

impl VecFusion {
    /// The weights' shape, a bias' and the last operand's.
    fn shapes(&self) -> [[usize; 4]; 3] {
        let (n, k, [b2, b3]) = (self.n, self.k, self.batch_dims);
        match self.experts {
            Some(_) => [[k, n, N_MATS, 1], [n, N_MATS, 1, 1], [1, N_USED, self.m, 1]],
            None => [[k, n, b2, b3], [n, 1, b2, b3], [n, 1, b2, b3]],
        }
    }

    fn shape_token(&self) -> [usize; 4] {
        let [b2, b3] = self.batch_dims;
        match self.experts {
            Some(Experts { share_rows: true }) => [self.k, 1, self.m, 1],
            Some(_) => [self.k, N_USED, self.m, 1],
            None => [self.k, self.m, b2, b3],
        }
    }

    /// A product, and a bias where there is one.
    fn branch<'g>(
        &self,
        weights: Tensor<'g>,
        token: Tensor<'g>,
        bias: Option<Tensor<'g>>,
        ids: Option<ExpertIds<'g>>,
    ) -> ggml_rs::Result<Tensor<'g>> {
        let product = match ids {
            Some(ids) => weights.mul_mat_id(token, ids)?,
            None => weights.mul_mat(token)?,
        };
        match (bias, ids) {
            (Some(bias), Some(ids)) => product.add_id(bias, ids),
            (Some(bias), None) => product.add(bias),
            (None, _) => Ok(product),
        }
    }
}

impl Case for VecFusion {
    fn op(&self) -> &'static str {
        "MUL_MAT_VEC_FUSION"
    }

    fn params(&self) -> String {
        let shared = matches!(self.experts, Some(Experts { share_rows: true }));
        Vars::new()
            .with("type", self.dtype)
            .with("glu_op", self.glu.number())
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("use_id", self.experts.is_some())
            .with("n_mats", N_MATS)
            .with("n_used", N_USED)
            .with("b", shared)
            .with("with_bias", self.with_bias)
            .with("with_gate", self.with_gate)
            .with("batch_dims", self.batch_dims)
            .to_string()
    }

    /// The last operand, the token, the weights and biases, and the ids.
    fn operands(&self) -> Vec<Operand> {
        let [weights, bias, last] = self.shapes();
        let mut operands = vec![
            Operand::new("last", DType::F32, last),
            Operand::new("cur", DType::F32, self.shape_token()),
            Operand::new("up", self.dtype, weights),
        ];
        if self.with_bias {
            operands.push(Operand::new("up_bias", DType::F32, bias));
        }
        if self.with_gate {
            operands.push(Operand::new("gate", self.dtype, weights));
            if self.with_bias {
                operands.push(Operand::new("gate_bias", DType::F32, bias));
            }
        }
        if self.experts.is_some() {
            operands.push(ids([N_MATS, self.m]));
        }
        operands
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| vec![&mut case.m, &mut case.n, &mut case.k])
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let mut given = leaves.tensors().into_iter();
        let count = given.len();
        let mut next = || given.next().expect("an operand for each tensor");
        let (last, token) = (next(), next());
        let ids = match self.experts {
            Some(_) => Some(used(leaves.rows(count), N_USED)?),
            None => None,
        };
        let mut branch = || {
            let weights = next();
            let bias = self.with_bias.then(&mut next);
            self.branch(weights, token, bias, ids)
        };
        let up = branch()?;
        let out = match self.with_gate {
            true => branch()?.glu_split(up, self.glu.op())?,
            false => up,
        };
        match self.experts {
            Some(_) => out.mul(last),
            None => out.add(last),
        }
    }

    /// Without a gate the result is a sum, whose gradient no value of the product is part of. With one, what rounding moves the
    /// gate's argument by counts times the other product, which is some 5 (256 products of values below 1), and that rounds too.
    /// GEGLU looks F32 up in a table of halves, for an operand rounded to half.
    fn gradient(&self) -> Gradient {
        let product = Gradient::of_product(self.dtype);
        match (self.dtype, self.glu) {
            _ if !self.with_gate => product,
            (DType::F32, Glu::Geglu) => product.tolerance(2e-3),
            (DType::F32, Glu::Swiglu) => product,
            _ => product.tolerance(4.0 * product.tolerance),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-3
    }

    fn is_fusion(&self) -> bool {
        true
    }
}

/// What is fused: a bias, a gate or both; with a gate both functions.
const FUSED: [(bool, bool, Glu); 5] = [
    (false, true, Glu::Swiglu),
    (false, true, Glu::Geglu),
    (true, true, Glu::Swiglu),
    (true, true, Glu::Geglu),
    (true, false, Glu::Swiglu),
];

/// Upstream's: with and without experts, for its common types.
pub(super) fn cases() -> Vec<VecFusion> {
    let mut cases = Vec::new();
    for dtype in types::BASE {
        for experts in [None, Some(false), Some(true)] {
            for (with_bias, with_gate, glu) in FUSED {
                cases.extend([[4, 2], [1, 1]].map(|batch_dims| VecFusion {
                    dtype,
                    glu,
                    m: 1,
                    n: 32,
                    k: 256,
                    experts: experts.map(|share_rows| Experts { share_rows }),
                    with_bias,
                    with_gate,
                    batch_dims,
                }));
            }
        }
    }
    cases
}

/// Two tokens and more, and ragged weights.
pub(super) fn ours() -> Vec<VecFusion> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q4_K] {
        for (m, n) in [(1, 33), (2, 7), (9, 65), (40, 33)] {
            cases.extend([None, Some(false)].map(|experts| VecFusion {
                dtype,
                glu: Glu::Swiglu,
                m,
                n,
                k: 256,
                experts: experts.map(|share_rows| Experts { share_rows }),
                with_bias: true,
                with_gate: true,
                batch_dims: [1, 1],
            }));
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
            cases()[0].name(),
            "MUL_MAT_VEC_FUSION(type=f32,glu_op=2,m=1,n=32,k=256,use_id=0,n_mats=16,n_used=8,b=0,with_bias=0,with_gate=1,batch_dims=[4,2])"
        );
        // Ten types, three ways to use experts.
        assert_eq!(cases().len(), 10 * 3 * 5 * 2);
    }
}
