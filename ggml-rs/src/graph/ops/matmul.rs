//! Products of matrices.

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::Shape;

impl<'g> Tensor<'g> {
    /// The outer product: `a` [m, k, ..] and `b` [n, k, ..] give [m, n, ..] of f32, the sum over k of
    /// `a[i, k] * b[j, k]`. `a` is repeated over `ne[2]` and `ne[3]` of `b`.
    ///
    /// This is the whole backward of [`Tensor::mul_mat`]. CPU and Metal take `a` in every type that ggml turns into
    /// floats and `b` in f32, f16 and bf16 (Metal takes bf16 where the GPU has it).
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[1]` agree and `ne[2]`, `ne[3]` of `b` are multiples of those of `a`;
    /// [`Error::Layout`](crate::Error::Layout) for a transposed `a`; [`Error::DType`](crate::Error::DType) for operands that are not numbers to multiply.
    #[doc(alias = "ggml_out_prod")]
    #[track_caller]
    pub fn out_prod(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_out_prod(self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_out_prod's assertions.
        self.make("out_prod", |context| unsafe {
            sys::ggml_out_prod(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// The matrix product: `a` [k, m, ..] and `b` [k, n, ..] give [m, n, ..] of f32, the sum over k of
    /// `a[k, i] * b[k, j]`. `a` is repeated over `ne[2]` and `ne[3]` of `b`.
    ///
    /// Metal stages operands as f16 unless [`Tensor::set_staging`] says otherwise. The CPU converts `b` to the type that it
    /// multiplies `a` in: with quantized weights NaN is lost there.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[0]` agree and `ne[2]`, `ne[3]` of `b` are multiples of those of `a`;
    /// [`Error::Layout`](crate::Error::Layout) for a transposed `a`; [`Error::DType`](crate::Error::DType) for operands that are not numbers to multiply.
    #[doc(alias = "ggml_mul_mat")]
    #[track_caller]
    pub fn mul_mat(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_mul_mat(self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_mul_mat's assertions.
        self.make("mul_mat", |context| unsafe {
            sys::ggml_mul_mat(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// [`Tensor::mul_mat`] where every matrix of `a` is the normalized Hadamard matrix: `a[k, i]` is 1 / sqrt(n), negative
    /// where `k` and `i` have an odd number of bits in common. Devices may transform the rows of `b` and never read `a`; with
    /// other values they disagree with each other.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless matrices of `a` are square with a power of two of rows, and `ne[2]`, `ne[3]` of
    /// `b` multiples of those of `a`; [`Error::DType`](crate::Error::DType) unless `a` is F32 and `b` F32 or F16;
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_mul_mat_set_hint")]
    #[doc(alias = "GGML_HINT_SRC0_IS_HADAMARD")]
    #[track_caller]
    pub fn mul_mat_hadamard(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_hadamard(self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors the assertions of ggml_mul_mat and of the transform, which
        // writes as many values as a row of b has.
        self.make("mul_mat_hadamard", |context| unsafe {
            let node = sys::ggml_mul_mat(context, self.as_ptr(), b.as_ptr());
            sys::ggml_mul_mat_set_hint(node, sys::GGML_HINT_SRC0_IS_HADAMARD);
            node
        })
    }
}

/// Mirrors `ggml_mul_mat`, and what the transform of rows takes for granted.
fn check_hadamard(a: Layout, b: Layout) -> Checked {
    const OP: &str = "mul_mat_hadamard";
    let refusal = Refusal {
        op: OP,
        operands: &[("a", a), ("b", b)],
    };
    let [columns, rows, ..] = a.ne;
    if columns != rows || columns != b.ne[0] || !columns.is_power_of_two() {
        return Err(
            refusal.shape("a must be square, with as many rows as b has columns, a power of two")
        );
    }
    if a.dtype != DType::F32 || !matches!(b.dtype, DType::F32 | DType::F16) {
        return Err(refusal.dtype("a must be F32, and b F32 or F16"));
    }
    if !a.has_packed_rows() || !b.has_packed_rows() {
        return Err(refusal.layout("rows must be packed: call cont() first"));
    }
    check_product(OP, a, b, [a.ne[1], b.ne[1], b.ne[2], b.ne[3]])
}

/// Mirrors `ggml_out_prod` and `ggml_can_out_prod`.
fn check_out_prod(a: Layout, b: Layout) -> Checked {
    if a.ne[1] != b.ne[1] {
        let refusal = Refusal {
            op: "out_prod",
            operands: &[("a", a), ("b", b)],
        };
        return Err(refusal.shape("ne[1], the dimension summed over, must be the same in both"));
    }
    check_product("out_prod", a, b, [a.ne[0], b.ne[0], b.ne[2], b.ne[3]])
}

/// Mirrors `ggml_mul_mat` and `ggml_can_mul_mat`.
#[inline]
fn check_mul_mat(a: Layout, b: Layout) -> Checked {
    if a.ne[0] != b.ne[0] {
        let refusal = Refusal {
            op: "mul_mat",
            operands: &[("a", a), ("b", b)],
        };
        return Err(refusal.shape("ne[0], the dimension summed over, must be the same in both"));
    }
    check_product("mul_mat", a, b, [a.ne[1], b.ne[1], b.ne[2], b.ne[3]])
}

/// What both products ask for.
#[inline]
fn check_product(op: &'static str, a: Layout, b: Layout, result: [usize; 4]) -> Checked {
    let repeats = [2, 3].map(|i| a.ne[i] == b.ne[i] || b.ne[i].is_multiple_of(a.ne[i]));
    let numbers = multiplies(a.dtype) && multiplies(b.dtype);
    if repeats == [true; 2] && !a.is_transposed() && numbers && Shape::fits(DType::F32, result) {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    if repeats != [true; 2] {
        return Err(refusal.shape("ne[2] and ne[3] of b must be multiples of those of a"));
    }
    if a.is_transposed() {
        return Err(refusal.layout("a must not be transposed: call cont() on it first"));
    }
    if !numbers {
        return Err(refusal.dtype("operands must be of a floating-point or quantized type"));
    }
    refusal.check_result(DType::F32, result)
}

/// Whether a type holds numbers that products take.
#[inline]
pub(super) fn multiplies(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_quantized()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn matching_shapes_pass() {
        check_out_prod(layout(DType::Q4_K, &[256, 7]), layout(DType::F32, &[5, 7])).unwrap();
        check_out_prod(
            layout(DType::F32, &[8, 7, 2, 3]),
            layout(DType::F32, &[5, 7, 4, 3]),
        )
        .unwrap();
        check_out_prod(
            layout(DType::F32, &[8, 7]),
            transposed(layout(DType::F32, &[7, 5])),
        )
        .unwrap();
        check_mul_mat(layout(DType::F16, &[8, 7]), layout(DType::F32, &[8, 5])).unwrap();
    }

    #[test]
    fn a_hadamard_matrix_has_a_power_of_two_of_rows() {
        let check =
            |a: &[usize], b: &[usize]| check_hadamard(layout(DType::F32, a), layout(DType::F32, b));
        check(&[8, 8], &[8, 3]).unwrap();
        check(&[8, 8, 2], &[8, 3, 4]).unwrap();
        for (a, b) in [
            (&[8, 4][..], &[8, 3][..]),
            (&[6, 6], &[6, 3]),
            (&[8, 8], &[4, 3]),
            (&[8, 8, 2], &[8, 3, 3]),
        ] {
            assert!(matches!(check(a, b), Err(Refused::Shape(_))), "{a:?} {b:?}");
        }
        let (a, b) = (layout(DType::F32, &[8, 8]), layout(DType::BF16, &[8, 3]));
        assert!(matches!(check_hadamard(a, b), Err(Refused::DType(_))));
        let turned = transposed(layout(DType::F32, &[3, 8]));
        assert!(matches!(check_hadamard(a, turned), Err(Refused::Layout(_))));
    }

    #[test]
    fn errors_name_op_operands_and_shapes() {
        let error =
            check_out_prod(layout(DType::F32, &[256, 7]), layout(DType::F32, &[5, 8])).unwrap_err();
        let text = error.to_string();
        for part in [
            "out_prod",
            "a: f32 [256, 7, 1, 1]",
            "b: f32 [5, 8, 1, 1]",
            "ne[1]",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn broadcast_must_be_whole() {
        let (a, b) = (
            layout(DType::F32, &[8, 7, 2]),
            layout(DType::F32, &[5, 7, 3]),
        );
        assert!(matches!(check_out_prod(a, b), Err(Refused::Shape(_))));
        let (a, b) = (
            layout(DType::F32, &[8, 7, 1, 4]),
            layout(DType::F32, &[8, 5, 1, 2]),
        );
        assert!(matches!(check_mul_mat(a, b), Err(Refused::Shape(_))));
    }

    #[test]
    fn a_must_not_be_transposed() {
        let a = transposed(layout(DType::F32, &[7, 256]));
        assert!(matches!(
            check_out_prod(a, layout(DType::F32, &[5, 7])),
            Err(Refused::Layout(_))
        ));
        let a = transposed(layout(DType::F32, &[7, 256]));
        assert!(matches!(
            check_mul_mat(a, layout(DType::F32, &[256, 5])),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn integers_are_not_multiplied() {
        let error = check_mul_mat(layout(DType::I32, &[4, 4]), layout(DType::F32, &[4, 4]));
        assert!(matches!(error, Err(Refused::DType(_))));
    }

    #[test]
    fn results_that_overflow_are_refused() {
        let wide = layout(DType::F16, &[1 << 31, 1]);
        let text = check_out_prod(wide, wide).unwrap_err().to_string();
        assert!(
            text.contains("out_prod") && text.contains("overflows"),
            "{text}"
        );
    }
}
