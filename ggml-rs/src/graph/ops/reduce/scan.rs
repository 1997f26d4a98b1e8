//! Running sums, places of maxima, and counts.

use ggml_sys as sys;

use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// The sums of each row's first elements: `sum of a[0..=i]` at `i`.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless F32.
    #[doc(alias = "ggml_cumsum")]
    #[track_caller]
    pub fn cumsum(self) -> Result<Self> {
        let at = here();
        check_cumsum(self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_cumsum's assertion.
        self.make("cumsum", |context| unsafe {
            sys::ggml_cumsum(context, self.as_ptr())
        })
    }

    /// Where the largest element of each row of a matrix is, I32 `[ne[1]]`. Which of several equal ones is not specified, nor
    /// is the place in a row with NaN.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[2]` and `ne[3]` are 1 and `ne[0]` is at most 2^31 - 1.
    #[doc(alias = "ggml_argmax")]
    #[track_caller]
    pub fn argmax(self) -> Result<Self> {
        let at = here();
        check_argmax(self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_argmax's assertions.
        self.make("argmax", |context| unsafe {
            sys::ggml_argmax(context, self.as_ptr())
        })
    }

    /// How many elements are equal to those of `b`, one I64. Both are I32 matrices.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless both shapes are equal.
    #[doc(alias = "ggml_count_equal")]
    #[track_caller]
    pub fn count_equal(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_count_equal(self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_count_equal's assertion.
        self.make("count_equal", |context| unsafe {
            sys::ggml_count_equal(context, self.as_ptr(), b.as_ptr())
        })
    }
}

/// Mirrors `ggml_cumsum`.
fn check_cumsum(a: Layout) -> Checked {
    if a.dtype == F32 {
        return Ok(());
    }
    let refusal = Refusal {
        op: "cumsum",
        operands: &[("a", a)],
    };
    Err(refusal.dtype("a must be F32"))
}

/// Mirrors `ggml_argmax`.
fn check_argmax(a: Layout) -> Checked {
    let refusal = Refusal {
        op: "argmax",
        operands: &[("a", a)],
    };
    if a.ne[2] != 1 || a.ne[3] != 1 {
        return Err(refusal.shape("a must be a matrix"));
    }
    if a.ne[0] > i32::MAX as usize {
        return Err(refusal.shape("places in a row are counted in i32"));
    }
    Ok(())
}

/// Mirrors `ggml_count_equal`.
fn check_count_equal(a: Layout, b: Layout) -> Checked {
    if a.ne == b.ne {
        return Ok(());
    }
    let refusal = Refusal {
        op: "count_equal",
        operands: &[("a", a), ("b", b)],
    };
    Err(refusal.shape("both must have the same shape"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F16, I32};
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn operands_are_ggmls() {
        check_cumsum(layout(F32, &[4, 3])).unwrap();
        assert!(matches!(
            check_cumsum(layout(F16, &[4])),
            Err(Refused::DType(_))
        ));
        check_argmax(layout(F32, &[4, 3])).unwrap();
        for refused in [layout(F32, &[4, 3, 2]), layout(F32, &[1 << 31])] {
            assert!(matches!(check_argmax(refused), Err(Refused::Shape(_))));
        }
        let a = layout(I32, &[4, 3]);
        check_count_equal(a, a).unwrap();
        let refused = check_count_equal(a, layout(I32, &[4]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
    }
}
