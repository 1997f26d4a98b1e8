//! Parts of matrices.

use std::ffi::c_int;

use ggml_sys as sys;

use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::graph::ops::inplace;
use crate::layout::{Layout, Refusal};

/// What [`Tensor::tri`] keeps of a square matrix, by column `i` and row `j`.
#[doc(alias = "ggml_tri_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TriPart {
    /// `i < j`.
    Lower,
    /// `i <= j`.
    LowerDiag,
    /// `i > j`.
    Upper,
    /// `i >= j`.
    UpperDiag,
}

impl TriPart {
    fn raw(self) -> sys::ggml_tri_type {
        match self {
            Self::Lower => sys::GGML_TRI_TYPE_LOWER,
            Self::LowerDiag => sys::GGML_TRI_TYPE_LOWER_DIAG,
            Self::Upper => sys::GGML_TRI_TYPE_UPPER,
            Self::UpperDiag => sys::GGML_TRI_TYPE_UPPER_DIAG,
        }
    }
}

/// One of ggml's masks.
type Make = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    c_int,
) -> *mut sys::ggml_tensor;

impl Tensor<'_> {
    /// `a`, with minus infinity where the column is beyond `n_past` plus the row: what a token must not attend to.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) when `n_past` exceeds 2^31 - 1.
    #[doc(alias = "ggml_diag_mask_inf")]
    #[track_caller]
    pub fn diag_mask_inf(self, n_past: usize) -> Result<Self> {
        self.masked("diag_mask_inf", n_past, sys::ggml_diag_mask_inf)
    }

    /// [`Tensor::diag_mask_inf`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::diag_mask_inf`]; [`Error::Layout`](crate::Error::Layout) where elements share memory.
    #[doc(alias = "ggml_diag_mask_inf_inplace")]
    #[track_caller]
    pub fn diag_mask_inf_inplace(self, n_past: usize) -> Result<Self> {
        let at = here();
        const OP: &str = "diag_mask_inf_inplace";
        inplace::check(OP, self, &[]).at(at)?;
        self.masked(OP, n_past, sys::ggml_diag_mask_inf_inplace)
    }

    /// `a`, with 0 where the column is beyond `n_past` plus the row.
    ///
    /// # Errors
    /// As [`Tensor::diag_mask_inf`].
    #[doc(alias = "ggml_diag_mask_zero")]
    #[track_caller]
    pub fn diag_mask_zero(self, n_past: usize) -> Result<Self> {
        self.masked("diag_mask_zero", n_past, sys::ggml_diag_mask_zero)
    }

    /// [`Tensor::diag_mask_zero`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::diag_mask_inf_inplace`].
    #[doc(alias = "ggml_diag_mask_zero_inplace")]
    #[track_caller]
    pub fn diag_mask_zero_inplace(self, n_past: usize) -> Result<Self> {
        let at = here();
        const OP: &str = "diag_mask_zero_inplace";
        inplace::check(OP, self, &[]).at(at)?;
        self.masked(OP, n_past, sys::ggml_diag_mask_zero_inplace)
    }

    #[track_caller]
    fn masked(self, op: &'static str, n_past: usize, make: Make) -> Result<Self> {
        let at = here();
        let n_past = check_past(op, self.layout(), n_past).at(at)?;
        // SAFETY: the tensor is alive; ggml's masks assert nothing while a graph is built.
        self.make(op, |context| unsafe {
            make(context, self.as_ptr(), n_past)
        })
    }

    /// A triangle of each square matrix; 0 elsewhere.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless F32; [`Error::Layout`](crate::Error::Layout) unless contiguous; [`Error::Shape`](crate::Error::Shape) unless
    /// `ne[0]` is `ne[1]`.
    #[doc(alias = "ggml_tri")]
    #[track_caller]
    pub fn tri(self, part: TriPart) -> Result<Self> {
        let at = here();
        check_tri(self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_tri's assertions.
        self.make("tri", |context| unsafe {
            sys::ggml_tri(context, self.as_ptr(), part.raw())
        })
    }
}

/// ggml stores the number as i32, and the kernel asserts that it is not negative.
fn check_past(op: &'static str, a: Layout, n_past: usize) -> Checked<c_int> {
    c_int::try_from(n_past).map_err(|_| {
        let refusal = Refusal {
            op,
            operands: &[("a", a)],
        };
        refusal.param(format!("n_past {n_past} exceeds 2^31 - 1"))
    })
}

/// Mirrors `ggml_tri`.
fn check_tri(a: Layout) -> Checked {
    let refusal = Refusal {
        op: "tri",
        operands: &[("a", a)],
    };
    if a.dtype != F32 {
        return Err(refusal.dtype("a must be F32"));
    }
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    if a.ne[0] != a.ne[1] {
        return Err(refusal.shape("matrices must be square"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn triangles_are_of_squares() {
        check_tri(layout(F32, &[4, 4, 3])).unwrap();
        let refused = check_tri(layout(F32, &[4, 3]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_tri(layout(F16, &[4, 4]));
        assert!(matches!(refused, Err(Refused::DType(_))));
        let refused = check_tri(transposed(layout(F32, &[4, 4])));
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn the_past_is_counted_in_i32() {
        let a = layout(F32, &[4, 4]);
        assert_eq!(check_past("diag_mask_inf", a, 7), Ok(7));
        let refused = check_past("diag_mask_inf", a, 1 << 31);
        assert!(matches!(refused, Err(Refused::Param(_))));
    }
}
