//! Transposed convolutions: every element of the input adds its multiple of the kernel to the output.

use ggml_sys as sys;

use super::{MAX_SIZE, check_step};
use crate::dtype::DType::{F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// Kernel `self` [k, oc, c] of F32 or F16, and `b` [l, c] of F32, give [(l - 1) * stride + k, oc] of F32 with
    /// `out[i, o] = sum of self[j, o, c] * b[s, c] over c and all j and s with s * stride + j = i`.
    /// With an F16 kernel the CPU rounds `b` to F16.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless channels agree and `b` is a matrix; [`Error::DType`](crate::Error::DType)
    /// for other types; [`Error::Param`](crate::Error::Param) for a stride of 0 or beyond 2^24.
    #[doc(alias = "ggml_conv_transpose_1d")]
    #[track_caller]
    pub fn conv_transpose_1d(self, b: Tensor<'g>, stride: usize) -> Result<Self> {
        let at = here();
        check_1d(self.layout(), b.layout(), stride).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_conv_transpose_1d's assertions, which ask for no padding
        // and a dilation of 1.
        self.make("conv_transpose_1d", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_conv_transpose_1d(context, a, b, stride as i32, 0, 1)
        })
    }

    /// Kernel `self` [kw, kh, oc, c] of F32 or F16, and `b` [w, h, c, n] of F32, give
    /// [(w - 1) * stride + kw, (h - 1) * stride + kh, oc, n] of F32. With an F16 kernel the CPU rounds `b` to F16.
    ///
    /// # Errors
    /// As [`Tensor::conv_transpose_1d`].
    #[doc(alias = "ggml_conv_transpose_2d_p0")]
    #[track_caller]
    pub fn conv_transpose_2d_p0(self, b: Tensor<'g>, stride: usize) -> Result<Self> {
        let at = here();
        check_2d(self.layout(), b.layout(), stride).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_conv_transpose_2d_p0's assertion.
        self.make("conv_transpose_2d", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_conv_transpose_2d_p0(context, a, b, stride as i32)
        })
    }
}

fn check_types(refusal: &Refusal, a: Layout, b: Layout) -> Checked {
    if !matches!(a.dtype, F32 | F16) || b.dtype != F32 {
        return Err(refusal.dtype("the kernel must be F32 or F16, and b F32"));
    }
    Ok(())
}

/// The output's length along a dimension.
fn length(refusal: &Refusal, input: usize, kernel: usize, stride: usize) -> Checked<usize> {
    check_step(refusal, "stride", stride)?;
    (input - 1)
        .checked_mul(stride)
        .and_then(|n| n.checked_add(kernel))
        .filter(|&n| n <= MAX_SIZE)
        .ok_or_else(|| {
            refusal.shape(format!(
                "the result exceeds {MAX_SIZE} elements in a dimension"
            ))
        })
}

/// Mirrors `ggml_conv_transpose_1d`, and the assertions on `b` that ggml makes before it computes.
fn check_1d(a: Layout, b: Layout, stride: usize) -> Checked {
    let refusal = Refusal {
        op: "conv_transpose_1d",
        operands: &[("a", a), ("b", b)],
    };
    if a.ne[2] != b.ne[1] || a.ne[3] != 1 || b.ne[2..] != [1, 1] {
        return Err(refusal.shape("b must be a matrix whose ne[1], the channels, is ne[2] of a"));
    }
    check_types(&refusal, a, b)?;
    let length = length(&refusal, b.ne[0], a.ne[0], stride)?;
    refusal.check_result(F32, [length, a.ne[1], 1, 1])
}

/// Mirrors `ggml_conv_transpose_2d_p0`.
fn check_2d(a: Layout, b: Layout, stride: usize) -> Checked {
    let refusal = Refusal {
        op: "conv_transpose_2d_p0",
        operands: &[("a", a), ("b", b)],
    };
    if a.ne[3] != b.ne[2] {
        return Err(refusal.shape("ne[3] of a and ne[2] of b, the channels, must be the same"));
    }
    check_types(&refusal, a, b)?;
    let width = length(&refusal, b.ne[0], a.ne[0], stride)?;
    let height = length(&refusal, b.ne[1], a.ne[1], stride)?;
    refusal.check_result(F32, [width, height, a.ne[2], b.ne[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn channels_agree_and_lengths_are_bounded() {
        let (a, b) = (layout(F16, &[3, 5, 4]), layout(F32, &[8, 4]));
        check_1d(a, b, 2).unwrap();
        assert!(matches!(check_1d(a, b, 0), Err(Refused::Param(_))));
        assert!(matches!(
            check_1d(a, layout(F32, &[8, 5]), 2),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_1d(a, layout(F32, &[8, 4, 2]), 2),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_1d(a, layout(F16, &[8, 4]), 2),
            Err(Refused::DType(_))
        ));
        let long = layout(F32, &[1 << 20, 4]);
        assert!(matches!(check_1d(a, long, 1 << 20), Err(Refused::Shape(_))));

        let (a, b) = (layout(F32, &[3, 2, 5, 4]), layout(F32, &[8, 7, 4, 2]));
        check_2d(a, b, 3).unwrap();
        assert!(matches!(
            check_2d(a, layout(F32, &[8, 7, 5]), 3),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(check_2d(a, b, usize::MAX), Err(Refused::Param(_))));
    }
}
