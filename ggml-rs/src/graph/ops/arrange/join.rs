//! From several tensors to one, and from many copies to one.

use std::ffi::c_int;

use ggml_sys as sys;

use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// `b` behind `a` along dimension `axis`.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for an axis above 3; [`Error::DType`](crate::Error::DType) unless both are of one type;
    /// [`Error::Shape`](crate::Error::Shape) unless the other dimensions agree.
    #[doc(alias = "ggml_concat")]
    #[track_caller]
    pub fn concat(self, b: Tensor<'g>, axis: usize) -> Result<Self> {
        let at = here();
        check_concat(self.layout(), b.layout(), axis).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_concat's assertions.
        self.make("concat", |context| unsafe {
            sys::ggml_concat(context, self.as_ptr(), b.as_ptr(), axis as c_int)
        })
    }

    /// The gradient of [`Tensor::repeat`] from the shape of `like`, times `self`, the gradient of what came after it: the sum
    /// of all copies of that shape in `self`. The values of `like` are not read.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `like` fill `self`.
    #[doc(alias = "ggml_repeat_back")]
    #[track_caller]
    pub fn repeat_back(self, like: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_repeat_back(self.layout(), like.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_repeat_back's assertion.
        self.make("repeat_back", |context| unsafe {
            sys::ggml_repeat_back(context, self.as_ptr(), like.as_ptr())
        })
    }

    /// Matrices with the rows of `a` on their diagonals and zeros elsewhere: `[n, 1, ...]` becomes `[n, n, ...]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[1]` is 1.
    #[doc(alias = "ggml_diag")]
    #[track_caller]
    pub fn diag(self) -> Result<Self> {
        let at = here();
        check_diag(self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_diag's assertion.
        self.make("diag", |context| unsafe {
            sys::ggml_diag(context, self.as_ptr())
        })
    }
}

/// Mirrors `ggml_concat`.
fn check_concat(a: Layout, b: Layout, axis: usize) -> Checked {
    let refusal = Refusal {
        op: "concat",
        operands: &[("a", a), ("b", b)],
    };
    if axis > 3 {
        return Err(refusal.param(format!("axis {axis} is not 0 to 3")));
    }
    if a.dtype != b.dtype {
        return Err(refusal.dtype("both must be of one type"));
    }
    if (0..4).any(|i| i != axis && a.ne[i] != b.ne[i]) {
        return Err(refusal.shape(format!("all dimensions but ne[{axis}] must agree")));
    }
    let mut ne = a.ne;
    // Each is below a quarter of the range.
    ne[axis] += b.ne[axis];
    refusal.check_result(a.dtype, ne)
}

/// Mirrors `ggml_repeat_back`.
fn check_repeat_back(a: Layout, like: Layout) -> Checked {
    let refusal = Refusal {
        op: "repeat_back",
        operands: &[("a", a), ("like", like)],
    };
    if !like.can_repeat_to(a.ne) {
        return Err(refusal.shape("every dimension of a must be a multiple of like's"));
    }
    refusal.check_result(a.dtype, like.ne)
}

/// Mirrors `ggml_diag`.
fn check_diag(a: Layout) -> Checked {
    let refusal = Refusal {
        op: "diag",
        operands: &[("a", a)],
    };
    if a.ne[1] != 1 {
        return Err(refusal.shape("ne[1] must be 1: each row becomes a matrix"));
    }
    refusal.check_result(a.dtype, [a.ne[0], a.ne[0], a.ne[2], a.ne[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F16, F32, Q8_0};
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn tensors_are_joined_where_the_rest_agrees() {
        let a = layout(F32, &[4, 6, 2]);
        check_concat(a, layout(F32, &[4, 1, 2]), 1).unwrap();
        check_concat(a, layout(F32, &[4, 6, 2, 3]), 2).unwrap_err();
        check_concat(a, a, 3).unwrap();
        let refused = check_concat(a, layout(F32, &[3, 6, 2]), 1);
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_concat(a, layout(F16, &[4, 6, 2]), 1);
        assert!(matches!(refused, Err(Refused::DType(_))));
        assert!(matches!(check_concat(a, a, 4), Err(Refused::Param(_))));
        let huge = layout(Q8_0, &[1 << 60]);
        assert!(matches!(
            check_concat(huge, huge, 0),
            Err(Refused::Shape(_))
        ));
    }

    #[test]
    fn copies_are_whole() {
        let a = layout(F32, &[4, 6]);
        check_repeat_back(a, layout(F32, &[2, 3])).unwrap();
        let refused = check_repeat_back(a, layout(F32, &[3, 3]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_repeat_back(layout(Q8_0, &[32]), layout(F32, &[1]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
    }

    #[test]
    fn a_diagonal_is_a_row() {
        check_diag(layout(F32, &[4, 1, 3])).unwrap();
        for refused in [layout(F32, &[4, 2]), layout(F32, &[1 << 40])] {
            assert!(matches!(check_diag(refused), Err(Refused::Shape(_))));
        }
    }
}
