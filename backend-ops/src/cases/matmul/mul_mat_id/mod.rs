//! `MUL_MAT_ID`: the products of tokens with the matrices of the experts that each of them uses:
//! `dst[i, e, t] = sum over k of a[k, i, ids[e, t]] * b[k, e, t]`. Upstream's `test_mul_mat_id`.
//!
//! Upstream's ids are the first of rows as long as there are experts, a view. Those of the study of stagings lie next to each
//! other.

pub(crate) mod fusion;
mod ground_truth;

use ggml_rs::check::reference::{self, Values};
use ggml_rs::{DType, ExpertIds, RowIds, Staging, Tensor};

pub use ground_truth::ground_truth;

use crate::case::{Case, Choices, Leaves, Relaxation, relaxed, smaller};
use crate::cases::types;
use crate::data::{Operand, OperandData};
use crate::judge::routing::{ExpertProduct, Routing};
use crate::judge::study::Study;
use crate::vars::Vars;

/// Metal runs a batch from so many tokens and so long rows on, else one product of a matrix and a vector per token and expert.
const BATCH_TOKENS: usize = 32;
const BATCH_ROW: usize = 64;

/// One MUL_MAT_ID case.
#[derive(Clone, Debug, PartialEq)]
pub struct MulMatId {
    /// Type of `a`, the experts' matrices.
    pub type_a: DType,
    /// Type of `b`, the tokens.
    pub type_b: DType,
    /// Experts.
    pub n_mats: usize,
    /// Experts that each token uses.
    pub n_used: usize,
    /// Whether a token's experts share one row of `b`.
    pub b: bool,
    /// Dim 0 of the result, dim 1 of `a`.
    pub m: usize,
    /// Tokens.
    pub n: usize,
    /// The dimension summed over: dim 0 of both operands.
    pub k: usize,
    /// Ours, printed only when set: tokens of rms 1 and weights that make results of rms 1, in every staging.
    pub unit_rms: bool,
}

impl MulMatId {
    /// A case with upstream's data: both operands in `[-1, 1)`.
    pub(crate) fn new(type_a: DType, experts: Experts, [m, n, k]: [usize; 3]) -> Self {
        Self {
            type_a,
            type_b: DType::F32,
            n_mats: experts.all,
            n_used: experts.used,
            b: experts.share_rows,
            m,
            n,
            k,
            unit_rms: false,
        }
    }

    fn shape_a(&self) -> [usize; 4] {
        [self.k, self.m, self.n_mats, 1]
    }

    fn shape_b(&self) -> [usize; 4] {
        [self.k, if self.b { 1 } else { self.n_used }, self.n, 1]
    }

    /// Bounds of the values of `a` and `b`. Uniform values have the rms of their bound divided by the root of 3.
    fn ranges(&self) -> [f32; 2] {
        if self.unit_rms {
            [(3.0 / self.k as f32).sqrt(), 3_f32.sqrt()]
        } else {
            [1.0, 1.0]
        }
    }
}

impl Case for MulMatId {
    fn op(&self) -> &'static str {
        "MUL_MAT_ID"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_a", self.type_a)
            .with("type_b", self.type_b)
            .with("n_mats", self.n_mats)
            .with("n_used", self.n_used)
            .with("b", self.b)
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with_unless_default("unit_rms", self.unit_rms, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [range_a, range_b] = self.ranges();
        vec![
            Operand::new("a", self.type_a, self.shape_a()).within(range_a),
            Operand::new("b", self.type_b, self.shape_b()).within(range_b),
            match self.unit_rms {
                true => Operand::expert_ids("ids", [self.n_used, self.n], self.n_mats),
                false => ids([self.n_mats, self.n]),
            },
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![&mut case.n_used, &mut case.m, &mut case.n, &mut case.k]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let ids = match self.unit_rms {
            true => leaves.experts(2),
            false => used(leaves.rows(2), self.n_used)?,
        };
        let out = leaves[0].mul_mat_id(leaves[1], ids)?;
        match leaves.choices().staging {
            Some(staging) => out.set_staging(staging),
            None => Ok(out),
        }
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let a = Values::contiguous(operands[0].values(), self.shape_a())?;
        let b = Values::contiguous(operands[1].values(), self.shape_b())?;
        let ids = operands[2].ids();
        let ids: Vec<_> = ids
            .chunks(ids.len() / self.n)
            .flat_map(|of_token| &of_token[..self.n_used])
            .copied()
            .collect();
        reference::mul_mat_id(a, b, &ids).map(Some)
    }

    fn flops(&self) -> Option<f64> {
        Some(super::product_flops([self.m, self.n, self.k], self.n_used))
    }

    fn max_nmse(&self, choices: Choices) -> f64 {
        match choices.staging {
            // Only the order of f32 sums is left.
            Some(Staging::Float) => 1e-12,
            _ => 5e-4,
        }
    }

    fn routing(&self, _tensor_api: bool, choices: Choices) -> Option<Routing> {
        if self.n < BATCH_TOKENS || self.k < BATCH_ROW {
            return Some(Routing::MatVec);
        }
        Some(Routing::Experts(ExpertProduct {
            weights: self.type_a,
            activations: self.type_b,
            staging: choices.staging.unwrap_or(Staging::Half),
        }))
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let float_b = Self {
            type_b: DType::F32,
            ..self.clone()
        };
        let float_a = Self {
            type_a: DType::F32,
            ..self.clone()
        };
        let one_expert = Self {
            n_used: 1,
            ..self.clone()
        };
        relaxed(
            self,
            [
                (format!("src1 type {}", self.type_b), float_b),
                (format!("src0 type {}", self.type_a), float_a),
                (format!("{} experts per token", self.n_used), one_expert),
            ],
        )
    }

    fn study(&self) -> Option<Study> {
        self.unit_rms.then_some(Study {
            weights: self.type_a,
        })
    }
}

/// How many experts there are and how tokens use them.
#[derive(Clone, Copy)]
pub(crate) struct Experts {
    all: usize,
    used: usize,
    share_rows: bool,
}

pub(crate) const fn experts(all: usize, used: usize, share_rows: bool) -> Experts {
    Experts {
        all,
        used,
        share_rows,
    }
}

/// All experts of each token in random order.
pub(super) fn ids([experts, tokens]: [usize; 2]) -> Operand {
    Operand::row_ids("ids", [experts, tokens, 1, 1], experts, true)
}

/// The first of each token's ids: a view, unless all are used.
pub(super) fn used(ids: RowIds<'_>, n_used: usize) -> ggml_rs::Result<ExpertIds<'_>> {
    match ids.rows() == n_used {
        true => ids.experts(),
        false => ids.narrow(0, 0, n_used)?.experts(),
    }
}

/// Upstream's: many tokens of many experts, a model's layer, every type, then numbers of experts and tokens.
#[must_use]
pub fn cases() -> Vec<MulMatId> {
    let mut cases = Vec::new();
    for share_rows in [false, true] {
        for (n_mats, size) in [
            (16, [32, 1024, 16]),
            (2, [32, 8192, 64]),
            (16, [50, 200, 64]),
        ] {
            let experts = experts(n_mats, n_mats, share_rows);
            cases.push(MulMatId::new(DType::F16, experts, size));
        }
    }
    cases.push(MulMatId::new(DType::F16, experts(1, 1, false), [8, 16, 1]));
    for type_a in [DType::MXFP4, DType::Q4_0] {
        let experts = experts(32, 2, false);
        cases.push(MulMatId::new(type_a, experts, [2880, 32, 2880]));
    }
    for type_a in types::ALL {
        let k = 3 * type_a.block_len();
        cases.push(MulMatId::new(type_a, experts(4, 2, false), [64, 16, k]));
    }
    for type_a in types::BASE {
        for n_mats in [4, 8] {
            for n_used in [1, 2, 4] {
                for share_rows in [false, true] {
                    let experts = experts(n_mats, n_used, share_rows);
                    let case = |n| MulMatId::new(type_a, experts, [512, n, 256]);
                    cases.extend([1, 4, 5, 17, 32, 129].map(case));
                }
            }
        }
    }
    // Some types are in both lists.
    for type_a in types::OTHER {
        if !types::BASE.contains(&type_a) {
            let case = |n| MulMatId::new(type_a, experts(4, 2, false), [512, n, 256]);
            cases.extend([1, 32].map(case));
        }
    }
    cases
}

/// Sizes that a simulated device runs quickly: fewer tokens than a batch, a batch of whole tiles and one that is not, rows of
/// the weights and of the sum that fill no tile.
#[must_use]
pub fn ours() -> Vec<MulMatId> {
    const TYPES: [DType; 8] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q4_0,
        DType::Q8_0,
        DType::Q2_K,
        DType::Q4_K,
        DType::IQ2_XXS,
    ];
    let mut cases = Vec::new();
    for type_a in TYPES {
        for experts in [experts(4, 2, false), experts(8, 4, true)] {
            for n in [1, 32, 129] {
                cases.push(MulMatId::new(type_a, experts, [67, n, 256]));
            }
        }
    }
    for type_a in [DType::F32, DType::F16, DType::BF16] {
        // Below a batch's shortest row, above it and in no whole tile, and in no whole vector either.
        for k in [32, 72, 131] {
            for n in [5, 40] {
                cases.push(MulMatId::new(type_a, experts(4, 2, false), [64, n, k]));
            }
        }
    }
    for experts in [
        experts(1, 1, false),
        experts(16, 5, true),
        experts(8, 8, false),
        experts(64, 6, true),
        experts(32, 22, true),
    ] {
        cases.push(MulMatId::new(DType::Q4_K, experts, [128, 33, 512]));
    }
    for type_a in [DType::F32, DType::F16, DType::Q8_0] {
        cases.push(MulMatId {
            type_b: DType::F16,
            ..MulMatId::new(type_a, experts(4, 2, false), [64, 32, 256])
        });
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
            "MUL_MAT_ID(type_a=f16,type_b=f32,n_mats=16,n_used=16,b=0,m=32,n=1024,k=16)"
        );
    }

    #[test]
    fn names_are_unique_because_data_belongs_to_them() {
        let mut names: Vec<_> = cases()
            .iter()
            .chain(&ours())
            .chain(&ground_truth())
            .map(Case::name)
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn both_kernels_are_asserted() {
        let routings: Vec<_> = ours()
            .iter()
            .map(|c| c.routing(false, Choices::default()))
            .collect();
        let vector = |routing: &&Option<Routing>| matches!(routing, Some(Routing::MatVec));
        let vectors = routings.iter().filter(vector).count();
        assert!(vectors >= 20 && routings.len() - vectors >= 40, "{vectors}");
    }

    #[test]
    fn experts_share_rows_or_have_their_own() {
        let shared = MulMatId::new(DType::F32, experts(8, 4, true), [3, 5, 7]);
        assert_eq!(shared.shape_b(), [7, 1, 5, 1]);
        let own = MulMatId { b: false, ..shared };
        assert_eq!(own.shape_b(), [7, 4, 5, 1]);
    }
}
