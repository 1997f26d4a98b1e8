//! `OUT_PROD`: `dst[i0, i1] = sum over k of a[i0, k] * b[i1, k]`, with `a` broadcast over dims 2 and 3.
//!
//! ggml's MUL_MAT backward computes both gradients with it, so it is the whole matmul backward, and the gradient is always
//! operand `b`. Shapes as upstream's `test_out_prod`: `a` is `[m, k, bs0, bs1]`, `b` is `[n, k, bs0*nr0, bs1*nr1]`, or the
//! transpose of a stored `[k, n, ...]` with `trans_b`.

mod sets;

use ggml_rs::check::reference::{self, Values};
use ggml_rs::{DType, Route, Staging, Tensor};

pub use sets::{gate, ours, precise, range, upstream};

use super::MulMat;
use crate::case::{Case, Choices, Leaves, Part, Relaxation, relaxed, smaller};
use crate::cases::arrange::{Cpy, TRANSPOSED, UNPERMUTED};
use crate::data::{Operand, OperandData};
use crate::judge::routing::{Product, Routing};
use crate::vars::Vars;

/// Upstream's bound for OUT_PROD. Half staging's rounding (about 8e-8) is far inside: only overflow fails it, which is
/// why the runner asserts the dispatched kernel as well.
const MAX_NMSE: f64 = 5e-4;

/// What sums of 4096 random products reach in F32 if they are summed in blocks. Summed one after the other they do not: that is
/// about 1.2e-12.
const MAX_NMSE_PRECISE: f64 = 1e-12;

/// One OUT_PROD case. The fields after `trans_b` are ours and are printed only when they differ from their default.
#[derive(Clone, Debug, PartialEq)]
pub struct OutProd {
    /// Type of `a`, ggml's src0: the weight.
    pub type_a: DType,
    /// Type of `b`, ggml's src1: the gradient.
    pub type_b: DType,
    /// Rows of the result's ne order: dim 0.
    pub m: usize,
    /// Dim 1 of the result.
    pub n: usize,
    /// The dimension summed over.
    pub k: usize,
    /// Dims 2 and 3 of `a`.
    pub bs: [usize; 2],
    /// How often `a` repeats over dims 2 and 3 of `b`.
    pub nr: [usize; 2],
    /// Whether `b` is stored transposed: what MUL_MAT's backward always emits.
    pub trans_b: bool,
    /// `a` is uniform in `[-a_range, a_range)`.
    pub a_range: f32,
    /// `b` is uniform in `[-b_range, b_range)`.
    pub b_range: f32,
    /// Row length of `b` in memory when longer than its rows, which makes them non-contiguous; 0 for no padding.
    pub b_v: usize,
    /// The fork's cases for a weight that lives in another buffer than dst. Every case places every tensor in a buffer
    /// of its own, so the flag only marks (and names) the shapes that found that bug.
    pub a_own_buffer: bool,
    /// Whether `a` is stored `[bs0, m, k, bs1]` and permuted into place, which spreads its rows: a float `a` only.
    pub a_perm: bool,
    /// Whether no more than the rounding of sums in F32 may separate the result from f64.
    pub precise: bool,
}

impl OutProd {
    /// A case with contiguous `b` in `[-1, 1)`, no batches.
    #[must_use]
    pub fn new(type_a: DType, type_b: DType, [m, n, k]: [usize; 3]) -> Self {
        Self {
            type_a,
            type_b,
            m,
            n,
            k,
            bs: [1, 1],
            nr: [1, 1],
            trans_b: false,
            a_range: 1.0,
            b_range: 1.0,
            b_v: 0,
            a_own_buffer: false,
            a_perm: false,
            precise: false,
        }
    }

    /// The same case with batches and broadcast.
    #[must_use]
    pub fn batched(self, bs: [usize; 2], nr: [usize; 2]) -> Self {
        Self { bs, nr, ..self }
    }

    /// The same case with `b` stored transposed or not.
    #[must_use]
    pub fn transposed(self, trans_b: bool) -> Self {
        Self { trans_b, ..self }
    }

    /// `a` as stored.
    fn shape_a(&self) -> [usize; 4] {
        if self.a_perm {
            [self.bs[0], self.m, self.k, self.bs[1]]
        } else {
            [self.m, self.k, self.bs[0], self.bs[1]]
        }
    }

    /// `a` as the op sees it.
    fn view_a<'g>(&self, stored: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        if self.a_perm {
            stored.permute([2, 0, 1, 3])
        } else {
            Ok(stored)
        }
    }

    /// [`Self::view_a`] on the values.
    fn values_a<'d>(&self, stored: &'d OperandData) -> ggml_rs::Result<Values<'d>> {
        if !self.a_perm {
            return Values::contiguous(stored.values(), self.shape_a());
        }
        let (row, matrix) = (self.bs[0] * self.m, self.bs[0] * self.m * self.k);
        let ne = [self.m, self.k, self.bs[0], self.bs[1]];
        Values::strided(stored.values(), ne, [self.bs[0], row, 1, matrix])
    }

    /// Row length and rows of `b` as stored, padding apart.
    fn rows_b(&self) -> (usize, usize) {
        if self.trans_b {
            (self.k, self.n)
        } else {
            (self.n, self.k)
        }
    }

    /// Dims 2 and 3 of `b` and of the result.
    fn batch(&self) -> [usize; 2] {
        [self.bs[0] * self.nr[0], self.bs[1] * self.nr[1]]
    }

    /// `b` as stored.
    fn shape_b(&self) -> [usize; 4] {
        let (row, rows) = self.rows_b();
        [row.max(self.b_v), rows, self.batch()[0], self.batch()[1]]
    }

    /// `b` as the op sees it: without the padding, and transposed back.
    fn view_b<'g>(&self, stored: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (row, rows) = self.rows_b();
        let b = if self.b_v > row {
            let [_, nb1, nb2, nb3] = stored.strides();
            stored.view(
                [row, rows, self.batch()[0], self.batch()[1]],
                [nb1, nb2, nb3],
                0,
            )?
        } else {
            stored
        };
        if self.trans_b { b.transpose() } else { Ok(b) }
    }

    /// [`Self::view_b`] on the values.
    fn values_b<'d>(&self, stored: &'d OperandData) -> ggml_rs::Result<Values<'d>> {
        let (row, rows) = self.rows_b();
        let [width, _, batch, _] = self.shape_b();
        let ne = [row, rows, self.batch()[0], self.batch()[1]];
        let b = Values::strided(
            stored.values(),
            ne,
            [1, width, width * rows, width * rows * batch],
        )?;
        Ok(if self.trans_b { b.transposed() } else { b })
    }
}

impl Case for OutProd {
    fn op(&self) -> &'static str {
        "OUT_PROD"
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
            .with("trans_b", self.trans_b)
            .with_unless_default("a_range", self.a_range, 1.0)
            .with_unless_default("b_range", self.b_range, 1.0)
            .with_unless_default("b_v", self.b_v, 0)
            .with_unless_default("a_own_buffer", self.a_own_buffer, false)
            .with_unless_default("a_perm", self.a_perm, false)
            .with_unless_default("precise", self.precise, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("a", self.type_a, self.shape_a()).within(self.a_range),
            Operand::new("b", self.type_b, self.shape_b()).within(self.b_range),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            let sizes = [&mut case.m, &mut case.n, &mut case.k].into_iter();
            sizes.chain(&mut case.bs).chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let out = self.view_a(leaves[0])?.out_prod(self.view_b(leaves[1])?)?;
        if let Some(staging) = leaves.choices().staging {
            out.set_staging(staging)?;
        }
        if let Some(route @ (Route::Auto | Route::Direct)) = leaves.choices().route {
            out.set_route(route)?;
        }
        Ok(out)
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        reference::out_prod(self.values_a(&operands[0])?, self.values_b(&operands[1])?).map(Some)
    }

    fn flops(&self) -> Option<f64> {
        Some(super::product_flops(
            [self.m, self.n, self.k],
            self.batch().iter().product(),
        ))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.precise {
            MAX_NMSE_PRECISE
        } else {
            MAX_NMSE
        }
    }

    fn routing(&self, tensor_api: bool, choices: Choices) -> Option<Routing> {
        if choices.route == Some(Route::Direct) {
            return Some(Routing::Direct([self.type_a, self.type_b]));
        }
        let staging = choices.staging.unwrap_or(Staging::Float);
        Some(Routing::Batched(Product::of_f32(tensor_api, staging)))
    }

    /// As Metal computes it. With a permuted or padded operand no other op does the same.
    fn parts(&self) -> Vec<Part> {
        if self.a_perm || self.b_v > 0 {
            return Vec::new();
        }
        let temporary = |name, case| Part {
            name,
            is_temporary: true,
            case: Box::new(case) as Box<dyn Case>,
        };
        let copy = |from, ne, axes| Cpy::new(from, DType::F32, ne, axes);
        let mut parts = Vec::new();
        let mut type_a = self.type_a;
        if type_a.is_quantized() {
            parts.push(temporary(
                "a to float",
                copy(type_a, self.shape_a(), UNPERMUTED),
            ));
            type_a = DType::F32;
        }
        parts.push(temporary(
            "a transposed",
            copy(type_a, self.shape_a(), TRANSPOSED),
        ));
        if !self.trans_b {
            parts.push(temporary(
                "b transposed",
                copy(self.type_b, self.shape_b(), TRANSPOSED),
            ));
        }
        let product = MulMat {
            bs: self.bs,
            nr: self.nr,
            ..MulMat::new(DType::F32, [self.m, self.n, self.k])
        };
        parts.push(Part {
            name: "product",
            is_temporary: false,
            case: Box::new(product),
        });
        parts
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let float_a = Self {
            type_a: DType::F32,
            ..self.clone()
        };
        let float_b = Self {
            type_b: DType::F32,
            ..self.clone()
        };
        let no_broadcast = Self {
            nr: [1, 1],
            ..self.clone()
        };
        let float = Self {
            type_a: DType::F32,
            ..float_b.clone()
        };
        let float_b_no_broadcast = Self {
            nr: [1, 1],
            ..float_b.clone()
        };
        let (a, b) = (
            format!("src0 type {}", self.type_a),
            format!("src1 type {}", self.type_b),
        );
        let broadcast = format!("broadcast of {} over dims 2 and 3", self.type_a);
        // One difficulty before two: the first variant that a device takes names the reason. Broadcast comes before the
        // type of src0, because a device may take the type without it.
        let variants = [
            (b.clone(), float_b),
            (broadcast.clone(), no_broadcast),
            (a.clone(), float_a),
            (format!("{b}, {broadcast}"), float_b_no_broadcast),
            (format!("{b}, {a}"), float),
        ];
        relaxed(self, variants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> OutProd {
        OutProd::new(DType::Q4_K, DType::F32, [256, 3, 2]).batched([1, 2], [3, 1])
    }

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            sample().name(),
            "OUT_PROD(type_a=q4_K,type_b=f32,m=256,n=3,k=2,bs=[1,2],nr=[3,1],trans_b=0)"
        );
    }

    #[test]
    fn fields_of_ours_follow_upstreams() {
        let case = OutProd {
            b_range: 1.5e5,
            b_v: 48,
            a_own_buffer: true,
            a_perm: true,
            ..sample()
        };
        assert!(
            case.params()
                .ends_with("trans_b=0,b_range=150000.000000,b_v=48,a_own_buffer=1,a_perm=1"),
            "{}",
            case.params()
        );
    }

    #[test]
    fn b_is_stored_transposed_and_padded() {
        assert_eq!(sample().shape_b(), [3, 2, 3, 2]);
        assert_eq!(sample().transposed(true).shape_b(), [2, 3, 3, 2]);
        assert_eq!(
            OutProd {
                b_v: 48,
                ..sample()
            }
            .shape_b(),
            [48, 2, 3, 2]
        );
    }

    #[test]
    fn the_reference_sees_through_transpose_and_padding() {
        let data = |name, dtype, ne| {
            OperandData::generate(&Operand::new(name, dtype, ne), 1, "case")
                .expect("F32 needs no conversion")
        };
        let a = data("a", DType::F32, [2, 1, 1, 1]);
        // b is [n=3, k=1]: padded rows of five hold it in the first three places.
        let padded = OutProd {
            b_v: 5,
            ..OutProd::new(DType::F32, DType::F32, [2, 3, 1])
        };
        let b = data("b", DType::F32, padded.shape_b());
        let expected: Vec<f64> = b.values()[..3]
            .iter()
            .flat_map(|&b| a.values().iter().map(move |&a| f64::from(a) * f64::from(b)))
            .collect();
        assert_eq!(
            padded
                .reference(&[a.clone(), b.clone()])
                .expect("shapes fit"),
            Some(expected.clone())
        );
        // The transpose of a stored [k=1, n=3] with rows of five: every fifth value.
        let transposed = padded.transposed(true);
        let b = data("b", DType::F32, transposed.shape_b());
        let expected: Vec<f64> = b
            .values()
            .iter()
            .step_by(5)
            .flat_map(|&b| a.values().iter().map(move |&a| f64::from(a) * f64::from(b)))
            .collect();
        assert_eq!(
            transposed.reference(&[a, b]).expect("shapes fit"),
            Some(expected)
        );
    }

    #[test]
    fn relaxations_leave_out_one_difficulty_first() {
        let case = OutProd {
            type_b: DType::F16,
            ..sample()
        };
        let left_out: Vec<_> = case.relaxations().into_iter().map(|r| r.without).collect();
        assert_eq!(left_out[0], "src1 type f16");
        assert_eq!(
            left_out.last().map(String::as_str),
            Some("src1 type f16, src0 type q4_K")
        );
        let simple = OutProd::new(DType::F32, DType::F32, [1, 1, 1]);
        assert!(simple.relaxations().is_empty());
    }
}
