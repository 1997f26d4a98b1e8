//! `MUL_MAT`: `dst[i0, i1] = sum over k of a[k, i0] * b[k, i1]`, with `a` broadcast over dims 2 and 3. Upstream's
//! `test_mul_mat`.

use ggml_rs::check::reference::{self, Values};
use ggml_rs::{DType, Route, Staging, Tensor};

use crate::case::{Case, Choices, Leaves, smaller};
use crate::cases::{types, views};
use crate::data::{Operand, OperandData};
use crate::judge::routing::{Product, Routing};
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
    /// Dims of both operands as they lie in memory: two are exchanged, or none.
    pub per: [usize; 4],
    /// Above 0: length of the rows in memory, of which the first k elements are used.
    pub k_v: usize,
    /// How many products of the operands are added up.
    pub o: usize,
    /// Ours, printed only when not 1: bound of the values of `a`.
    pub a_range: f32,
}

impl MulMat {
    /// A case with F32 activations, no batches.
    pub(crate) fn new(type_a: DType, [m, n, k]: [usize; 3]) -> Self {
        Self {
            type_a,
            type_b: DType::F32,
            m,
            n,
            k,
            bs: [1, 1],
            nr: [1, 1],
            per: UNPERMUTED,
            k_v: 0,
            o: 1,
            a_range: 1.0,
        }
    }

    /// Whether operands are read as they lie.
    fn is_plain(&self) -> bool {
        self.per == UNPERMUTED && self.k_v == 0 && self.o == 1
    }

    /// A shape as it lies in memory.
    fn stored(&self, ne: [usize; 4]) -> [usize; 4] {
        let [k, rows, n2, n3] = self.per.map(|dim| ne[dim]);
        [if self.k_v == 0 { k } else { self.k_v }, rows, n2, n3]
    }

    fn used<'g>(&self, stored: Tensor<'g>, ne: [usize; 4]) -> ggml_rs::Result<Tensor<'g>> {
        match (self.per, self.k_v) {
            (UNPERMUTED, 0) => Ok(stored),
            (UNPERMUTED, _) => views::first(stored, ne),
            (per, _) => stored.permute(per),
        }
    }

    fn product<'g>(
        &self,
        [a, b]: [Tensor<'g>; 2],
        choices: Choices,
    ) -> ggml_rs::Result<Tensor<'g>> {
        let out = a.mul_mat(b)?;
        if let Some(staging) = choices.staging {
            out.set_staging(staging)?;
        }
        if let Some(route @ (Route::Auto | Route::MatVec)) = choices.route {
            out.set_route(route)?;
        }
        Ok(out)
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
        Vars::new()
            .with("type_a", self.type_a)
            .with("type_b", self.type_b)
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("bs", self.bs)
            .with("nr", self.nr)
            .with("per", self.per)
            .with("k_v", self.k_v)
            .with("o", self.o)
            .with_unless_default("a_range", self.a_range, 1.0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let a = Operand::new("a", self.type_a, self.stored(self.shape_a())).within(self.a_range);
        let b = Operand::new("b", self.type_b, self.stored(self.shape_b()));
        // Upstream's condition: the gradient of operand 0 is not summed over dim 3.
        let sums = self.bs[1] != 1 || self.nr[1] != 1;
        match (self.type_a.is_quantized(), sums) {
            (true, _) => vec![a, b],
            (false, true) => vec![a, b.trained()],
            (false, false) => vec![a.trained(), b.trained()],
        }
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            let sizes = [&mut case.m, &mut case.n, &mut case.k].into_iter();
            sizes.chain(&mut case.bs).chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let a = self.used(leaves[0], self.shape_a())?;
        let b = self.used(leaves[1], self.shape_b())?;
        let mut out = self.product([a, b], leaves.choices())?;
        for _ in 1..self.o {
            out = out.add(self.product([a, b], leaves.choices())?)?;
        }
        Ok(out)
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        if !self.is_plain() {
            return Ok(None);
        }
        let a = Values::contiguous(operands[0].values(), self.shape_a())?;
        let b = Values::contiguous(operands[1].values(), self.shape_b())?;
        reference::mul_mat(a, b).map(Some)
    }

    fn flops(&self) -> Option<f64> {
        Some(super::product_flops(
            [self.m, self.n, self.k],
            self.shape_b()[2..].iter().product(),
        ))
    }

    fn max_nmse(&self, choices: Choices) -> f64 {
        match choices.staging {
            Some(Staging::Float) if self.type_a == DType::TQ2_0 => MAX_NMSE_TQ2_0,
            Some(Staging::Float) => MAX_NMSE_FLOAT,
            _ => MAX_NMSE,
        }
    }

    fn routing(&self, tensor_api: bool, choices: Choices) -> Option<Routing> {
        // Batched kernels of half activations have names of their own.
        if self.type_b != DType::F32 && self.n > MAT_VEC_ROWS {
            return None;
        }
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

/// Operands that lie as they are used.
const UNPERMUTED: [usize; 4] = [0, 1, 2, 3];

/// Exchanges of two dims but the first.
const EXCHANGES: [[usize; 4]; 3] = [[0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 2, 1]];

/// Batches and how often `a` is repeated.
const BATCHES: [([usize; 2], [usize; 2]); 9] = [
    ([1, 1], [1, 1]),
    ([1, 1], [2, 1]),
    ([1, 1], [1, 2]),
    ([3, 1], [1, 1]),
    ([3, 1], [2, 1]),
    ([3, 2], [1, 1]),
    ([3, 2], [2, 1]),
    ([3, 2], [1, 2]),
    ([3, 2], [2, 2]),
];

/// Upstream's, each once: it has some in more than one of its lists.
#[must_use]
pub fn cases() -> Vec<MulMat> {
    let mut cases = few_rows();
    for type_a in types::BASE {
        for type_b in [DType::F32, DType::F16] {
            cases.extend(grid(type_a, type_b));
        }
    }
    for n in [1, 8, 16] {
        cases.extend(exchanged(DType::BF16, DType::F32, n, 256));
    }
    for type_a in types::OTHER {
        for k in [type_a.block_len(), 256] {
            cases.push(MulMat::new(type_a, [16, 1, k]));
        }
    }
    cases.extend(shapes_of_models());
    cases.extend(single_rows());
    let mut seen = std::collections::HashSet::new();
    cases.retain(|case| seen.insert(case.params()));
    cases
}

/// Every type with 1 to 9 rows of `b`, and a layer of a model.
fn few_rows() -> Vec<MulMat> {
    let mut cases = Vec::new();
    for type_a in types::ALL {
        cases.extend((1..10).map(|n| MulMat::new(type_a, [16, n, 256])));
    }
    let layers = [DType::Q4_0, DType::Q8_0, DType::MXFP4];
    cases.extend(layers.map(|type_a| MulMat::new(type_a, [2880, 32, 2880])));
    cases
}

/// Batches, exchanged dims, longer sums and many batches for one pair of types.
fn grid(type_a: DType, type_b: DType) -> Vec<MulMat> {
    let mut cases = Vec::new();
    let case = |n, k, (bs, nr)| MulMat {
        type_b,
        bs,
        nr,
        ..MulMat::new(type_a, [16, n, k])
    };
    let lengths = if type_a.is_quantized() {
        &[256][..]
    } else {
        &[256, 4]
    };
    for &k in lengths {
        cases.extend(BATCHES.map(|batch| case(1, k, batch)));
        cases.push(case(4, k, ([3, 2], [2, 2])));
        cases.extend(BATCHES.map(|batch| case(16, k, batch)));
        for n in [1, 8, 16] {
            cases.extend(exchanged(type_a, type_b, n, k));
        }
        cases.push(MulMat {
            bs: [2, 3],
            per: [0, 3, 2, 1],
            ..case(4, k, ([2, 3], [1, 1]))
        });
    }
    cases.extend([1, 8, 16].map(|n| case(n, 1024, ([3, 2], [1, 1]))));
    cases.push(case(8, 256, ([1536, 1], [1, 1])));
    cases
}

fn exchanged(type_a: DType, type_b: DType, n: usize, k: usize) -> [MulMat; 3] {
    EXCHANGES.map(|per| MulMat {
        type_b,
        bs: [2, 3],
        per,
        ..MulMat::new(type_a, [16, n, k])
    })
}

/// Attention's products, padded rows with two outputs more, ragged ones, one row of weights.
fn shapes_of_models() -> Vec<MulMat> {
    let mut cases = Vec::new();
    for (size, nr) in [
        ([64, 2, 128], 1),
        ([83, 2, 128], 4),
        ([64, 2, 64], 4),
        ([83, 2, 64], 4),
        ([64, 45, 128], 4),
        ([128, 45, 64], 4),
    ] {
        cases.push(MulMat {
            bs: [8, 1],
            nr: [nr, 1],
            ..MulMat::new(DType::F16, size)
        });
    }
    cases.extend([193, 67].map(|k| MulMat {
        nr: [4, 1],
        per: EXCHANGES[0],
        ..MulMat::new(DType::F16, [1056, 1, k])
    }));
    cases.push(MulMat {
        k_v: 64,
        o: 3,
        ..MulMat::new(DType::F32, [16, 32, 32])
    });
    cases.push(MulMat {
        bs: [12, 1],
        ..MulMat::new(DType::F32, [64, 77, 77])
    });
    cases.push(MulMat::new(DType::Q4_0, [576, 512, 576]));
    cases.push(MulMat::new(DType::Q4_0, [1, 2048, 8192]));
    cases.extend(types::ALL.map(|type_a| MulMat::new(type_a, [1, 64, 256])));
    cases.push(MulMat::new(DType::Q8_0, [6, 4096, 5120]));
    cases
}

/// One row of `b`, as a token's attention has it: exchanged dims, and padded rows, in batches and at odd sizes.
fn single_rows() -> Vec<MulMat> {
    let mut cases = Vec::new();
    for bs1 in [1, 3] {
        for bs0 in [1, 2, 4, 8] {
            for nr in [1, 4] {
                for (more_m, more_k) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    for type_a in [DType::F16, DType::BF16, DType::F32] {
                        let case = |size| MulMat {
                            bs: [bs0, bs1],
                            nr: [nr, 1],
                            ..MulMat::new(type_a, size)
                        };
                        cases.push(MulMat {
                            per: EXCHANGES[0],
                            ..case([1056 + more_m, 1, 128 + more_k])
                        });
                        cases.push(MulMat {
                            k_v: 2 * 1056 + more_k,
                            ..case([128 + more_m, 1, 1056 + more_k])
                        });
                    }
                }
            }
        }
    }
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
    cases.extend(ours_by_lie());
    cases
}

/// Batched and mat-vec products of exchanged and padded operands, and the smallest ones.
fn ours_by_lie() -> Vec<MulMat> {
    let mut cases = Vec::new();
    for type_a in [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q4_0,
        DType::Q4_K,
    ] {
        for n in [3, 40] {
            cases.extend(EXCHANGES.map(|per| MulMat {
                bs: [2, 3],
                per,
                ..MulMat::new(type_a, [67, n, 256])
            }));
            cases.push(MulMat {
                bs: [2, 1],
                k_v: 768,
                ..MulMat::new(type_a, [67, n, 256])
            });
        }
    }
    for type_a in [DType::F32, DType::F16, DType::BF16] {
        cases.extend([1, 33].map(|n| MulMat::new(type_a, [1, n, 1])));
        cases.push(MulMat::new(type_a, [33, 1, 1]));
        cases.extend([1, 33].map(|n| MulMat {
            type_b: DType::BF16,
            ..MulMat::new(type_a, [65, n, 96])
        }));
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
        let padded = "MUL_MAT(type_a=f32,type_b=f32,m=16,n=32,k=32,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=64,o=3)";
        assert!(cases().iter().any(|case| case.name() == padded));
    }

    #[test]
    fn exchanged_operands_are_used_as_the_others_are() {
        let case = MulMat {
            bs: [2, 3],
            per: [0, 3, 2, 1],
            ..MulMat::new(DType::F32, [5, 4, 8])
        };
        assert_eq!(case.stored(case.shape_a()), [8, 3, 2, 5]);
        assert_eq!(case.stored(case.shape_b()), [8, 3, 2, 4]);
    }
}
