//! `MUL_MAT`: `dst[i0, i1] = sum over k of a[k, i0] * b[k, i1]`, with `a` broadcast over dims 2 and 3. Upstream's
//! `test_mul_mat`.

use ggml_rs::check::reference::{self, Values};
use ggml_rs::{DType, Route, Staging, Tensor};

use crate::case::{Case, Choices, Leaves, smaller};
use crate::data::{Operand, OperandData};
use crate::routing::{Product, Routing};
use crate::vars::Vars;

/// One MUL_MAT case.
#[derive(Clone, Debug, PartialEq)]
pub struct MulMat {
    /// Type of `a`.
    pub type_a: DType,
    /// Type of `b`.
    pub type_b: DType,
    /// Dim 0 of the result, dim 1 of `a`.
    pub m: usize,
    /// Dim 1 of the result and of `b`.
    pub n: usize,
    /// The dimension summed over: dim 0 of both operands.
    pub k: usize,
    /// Dims 2 and 3 of `a`.
    pub bs: [usize; 2],
    /// How often `a` repeats over dims 2 and 3 of `b`.
    pub nr: [usize; 2],
    /// Ours, printed only when not 1: bound of the values of `a`.
    pub a_range: f32,
}

impl MulMat {
    fn new(type_a: DType, [m, n, k]: [usize; 3]) -> Self {
        Self {
            type_a,
            type_b: DType::F32,
            m,
            n,
            k,
            bs: [1, 1],
            nr: [1, 1],
            a_range: 1.0,
        }
    }

    /// Whether Metal takes the float-staged kernel where float staging is asked for; else it takes mat-vec kernels.
    fn runs_batched(&self) -> bool {
        self.n >= 32 && self.k >= BATCH_ROW && self.k.is_multiple_of(32)
    }

    fn shape_a(&self) -> [usize; 4] {
        [self.k, self.m, self.bs[0], self.bs[1]]
    }

    fn shape_b(&self) -> [usize; 4] {
        [
            self.k,
            self.n,
            self.bs[0] * self.nr[0],
            self.bs[1] * self.nr[1],
        ]
    }
}

impl Case for MulMat {
    fn op(&self) -> &'static str {
        "MUL_MAT"
    }

    fn params(&self) -> String {
        // The last three are upstream's permuted, padded and fused variants, which are not ported yet.
        Vars::new()
            .with("type_a", self.type_a)
            .with("type_b", self.type_b)
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("bs", self.bs)
            .with("nr", self.nr)
            .with("per", [0, 1, 2, 3])
            .with("k_v", 0)
            .with("o", 1)
            .with_unless_default("a_range", self.a_range, 1.0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("a", self.type_a, self.shape_a()).within(self.a_range),
            Operand::new("b", self.type_b, self.shape_b()),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            let sizes = [&mut case.m, &mut case.n, &mut case.k].into_iter();
            sizes.chain(&mut case.bs).chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let choices = leaves.choices();
        let out = leaves[0].mul_mat(leaves[1])?;
        if let Some(staging) = choices.staging {
            out.set_staging(staging)?;
        }
        if let Some(route) = choices.route {
            out.set_route(route)?;
        }
        Ok(out)
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let a = Values::contiguous(operands[0].values(), self.shape_a())?;
        let b = Values::contiguous(operands[1].values(), self.shape_b())?;
        reference::mul_mat(a, b).map(Some)
    }

    fn max_nmse(&self, choices: Choices) -> f64 {
        match choices.staging {
            Some(Staging::Float) if self.type_a == DType::TQ2_0 => MAX_NMSE_TQ2_0,
            Some(Staging::Float) => MAX_NMSE_FLOAT,
            _ => MAX_NMSE,
        }
    }

    fn routing(&self, tensor_api: bool, choices: Choices) -> Option<Routing> {
        if choices.route == Some(Route::MatVec) {
            return Some(Routing::MatVec);
        }
        Some(match choices.staging {
            Some(Staging::Float) if self.runs_batched() => {
                Routing::Batched(Product::new(self.type_a, tensor_api, Staging::Float))
            }
            Some(Staging::Float) => Routing::MatVec,
            _ if self.n <= MAT_VEC_ROWS || self.k < BATCH_ROW => Routing::MatVec,
            _ if self.n > FEW_ROWS => {
                Routing::Batched(Product::new(self.type_a, tensor_api, Staging::Half))
            }
            // Mat-vec kernels for a few rows or batched ones, by type.
            _ => Routing::NotFloatStaged,
        })
    }
}

/// Rows of `b` up to which no type of weights has a batched kernel, and up to which some have mat-vec kernels for a few rows.
const MAT_VEC_ROWS: usize = 8;
const FEW_ROWS: usize = 16;
/// The shortest sum of a batched kernel.
const BATCH_ROW: usize = 64;

/// Upstream's limit.
const MAX_NMSE: f64 = 5e-4;
/// Float operands lose nothing: what is left is the rounding of f32 sums, about 2e-13 in blocks of 512. A single operand
/// staged in half costs 1e-8.
const MAX_NMSE_FLOAT: f64 = 1e-12;
/// TQ2_0's mat-vec kernel multiplies its digits by differences of b's values, which cancel: about 3e-11.
const MAX_NMSE_TQ2_0: f64 = 1e-10;

/// Upstream's unpermuted shapes for some of its types: the vector path, the matrix path, batches and broadcast.
#[must_use]
pub fn cases() -> Vec<MulMat> {
    const TYPES: [DType; 6] = [
        DType::F32,
        DType::F16,
        DType::Q8_0,
        DType::Q4_0,
        DType::Q4_1,
        DType::Q4_K,
    ];
    const BATCHES: [([usize; 2], [usize; 2]); 4] = [
        ([1, 1], [1, 1]),
        ([1, 1], [2, 1]),
        ([3, 2], [1, 1]),
        ([3, 2], [2, 2]),
    ];
    let mut cases = Vec::new();
    for type_a in TYPES {
        for n in [1, 16] {
            let case = |(bs, nr)| MulMat {
                bs,
                nr,
                ..MulMat::new(type_a, [16, n, 256])
            };
            cases.extend(BATCHES.map(case));
        }
    }
    cases.push(MulMat {
        bs: [12, 1],
        ..MulMat::new(DType::F32, [64, 77, 77])
    });
    cases
}

/// Every type of weights with numbers of rows of `b` around those at which Metal changes kernels, ragged in m; the longest
/// sums, broadcast and ragged k for float weights.
#[must_use]
pub fn ours() -> Vec<MulMat> {
    const ROWS: [usize; 8] = [1, 4, 8, 12, 31, 32, 33, 64];
    /// Types that take a second and more per case to quantize: one mat-vec and one batched product each.
    const SLOW: [DType; 4] = [DType::IQ1_M, DType::IQ1_S, DType::IQ2_S, DType::IQ2_XS];
    const FEW_ROWS: [usize; 2] = [8, 33];
    let takes = |dtype: &DType| {
        matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || dtype.dequantizes()
    };
    let mut cases: Vec<_> = DType::ALL
        .into_iter()
        .filter(takes)
        .flat_map(|type_a| {
            let slow = SLOW.contains(&type_a);
            let rows = if slow { &FEW_ROWS[..] } else { &ROWS };
            rows.iter().map(move |&n| MulMat::new(type_a, [65, n, 256]))
        })
        .collect();
    // Scales whose sixteenth is a subnormal half, as weights of real models have them.
    for type_a in [DType::Q4_0, DType::Q4_1, DType::Q4_K] {
        cases.extend([4, 33].map(|n| MulMat {
            a_range: 0.004,
            ..MulMat::new(type_a, [65, n, 256])
        }));
    }
    for type_a in [DType::F32, DType::F16, DType::BF16] {
        for (m, n, k) in [(64, 32, 4096), (130, 65, 1024), (64, 64, 100), (3, 40, 33)] {
            cases.push(MulMat::new(type_a, [m, n, k]));
        }
        cases.push(MulMat {
            bs: [3, 2],
            nr: [2, 2],
            ..MulMat::new(type_a, [70, 45, 96])
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
            "MUL_MAT(type_a=f32,type_b=f32,m=16,n=1,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1)"
        );
    }
}
