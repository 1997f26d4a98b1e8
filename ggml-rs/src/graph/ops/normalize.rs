//! Norms of rows, and of groups of channels.

use ggml_sys as sys;

use super::inplace;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// One of ggml's functions of an operand and a small number.
type Make = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    f32,
) -> *mut sys::ggml_tensor;

impl<'g> Tensor<'g> {
    /// `(a - mean) / sqrt(variance + eps)` along each row.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `eps >= 0`.
    #[doc(alias = "ggml_norm")]
    #[track_caller]
    pub fn norm(self, eps: f32) -> Result<Self> {
        self.normalized("norm", eps, sys::ggml_norm)
    }

    /// [`Tensor::norm`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::norm`]; [`Error::Layout`](crate::Error::Layout) where elements share memory.
    #[doc(alias = "ggml_norm_inplace")]
    #[track_caller]
    pub fn norm_inplace(self, eps: f32) -> Result<Self> {
        let at = here();
        inplace::check("norm_inplace", self, &[]).at(at)?;
        self.normalized("norm_inplace", eps, sys::ggml_norm_inplace)
    }

    /// `a / sqrt(mean of a² + eps)` along each row.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `eps >= 0`.
    #[doc(alias = "ggml_rms_norm")]
    #[track_caller]
    pub fn rms_norm(self, eps: f32) -> Result<Self> {
        self.normalized("rms_norm", eps, sys::ggml_rms_norm)
    }

    /// [`Tensor::rms_norm`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::rms_norm`]; [`Error::Layout`](crate::Error::Layout) where elements share memory.
    #[doc(alias = "ggml_rms_norm_inplace")]
    #[track_caller]
    pub fn rms_norm_inplace(self, eps: f32) -> Result<Self> {
        let at = here();
        inplace::check("rms_norm_inplace", self, &[]).at(at)?;
        self.normalized("rms_norm_inplace", eps, sys::ggml_rms_norm_inplace)
    }

    /// The gradient of [`Tensor::rms_norm`] at `x`, times `self`, the gradient of what came after it:
    /// `(self - x * sum(x * self) / (sum(x²) + n eps)) / sqrt(mean of x² + eps)` along each row of `n`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless both shapes are equal; [`Error::DType`](crate::Error::DType) unless both types are;
    /// [`Error::Param`](crate::Error::Param) unless `eps >= 0`.
    #[doc(alias = "ggml_rms_norm_back")]
    #[track_caller]
    pub fn rms_norm_back(self, x: Tensor<'g>, eps: f32) -> Result<Self> {
        let at = here();
        check_back(self.layout(), x.layout()).at(at)?;
        check_eps("rms_norm_back", self.layout(), eps).at(at)?;
        // SAFETY: both tensors are alive; ggml_rms_norm_back asserts nothing.
        self.make("rms_norm_back", |context| unsafe {
            sys::ggml_rms_norm_back(context, self.as_ptr(), x.as_ptr(), eps)
        })
    }

    /// [`Tensor::norm`] over groups of channels: `[width, height, channels, batch]`, where each of `groups` groups of
    /// consecutive channels of one image is normalized as a whole.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `groups` is a divisor of `ne[2]` and `eps >= 0`.
    #[doc(alias = "ggml_group_norm")]
    #[track_caller]
    pub fn group_norm(self, groups: usize, eps: f32) -> Result<Self> {
        let at = here();
        let groups = check_groups("group_norm", self.layout(), groups).at(at)?;
        check_eps("group_norm", self.layout(), eps).at(at)?;
        // SAFETY: the tensor is alive; ggml_group_norm asserts nothing.
        self.make("group_norm", |context| unsafe {
            sys::ggml_group_norm(context, self.as_ptr(), groups, eps)
        })
    }

    /// [`Tensor::group_norm`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::group_norm`]; [`Error::Layout`](crate::Error::Layout) where elements share memory.
    #[doc(alias = "ggml_group_norm_inplace")]
    #[track_caller]
    pub fn group_norm_inplace(self, groups: usize, eps: f32) -> Result<Self> {
        let at = here();
        const OP: &str = "group_norm_inplace";
        let groups = check_groups(OP, self.layout(), groups).at(at)?;
        check_eps(OP, self.layout(), eps).at(at)?;
        inplace::check(OP, self, &[]).at(at)?;
        // SAFETY: the tensor is alive; ggml_group_norm_inplace asserts nothing.
        self.make(OP, |context| unsafe {
            sys::ggml_group_norm_inplace(context, self.as_ptr(), groups, eps)
        })
    }

    /// `a / max(sqrt(sum of a²), eps)` along each row. A row of zeros gives NaN where `eps` is 0.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `eps >= 0`.
    #[doc(alias = "ggml_l2_norm")]
    #[track_caller]
    pub fn l2_norm(self, eps: f32) -> Result<Self> {
        self.normalized("l2_norm", eps, sys::ggml_l2_norm)
    }

    /// [`Tensor::l2_norm`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::l2_norm`]; [`Error::Layout`](crate::Error::Layout) where elements share memory.
    #[doc(alias = "ggml_l2_norm_inplace")]
    #[track_caller]
    pub fn l2_norm_inplace(self, eps: f32) -> Result<Self> {
        let at = here();
        inplace::check("l2_norm_inplace", self, &[]).at(at)?;
        self.normalized("l2_norm_inplace", eps, sys::ggml_l2_norm_inplace)
    }

    #[track_caller]
    fn normalized(self, op: &'static str, eps: f32, make: Make) -> Result<Self> {
        let at = here();
        check_eps(op, self.layout(), eps).at(at)?;
        // SAFETY: the tensor is alive; ggml's norms assert nothing while a graph is built.
        self.make(op, |context| unsafe { make(context, self.as_ptr(), eps) })
    }
}

/// What the CPU's kernels assert while they compute.
#[inline]
fn check_eps(op: &'static str, a: Layout, eps: f32) -> Checked {
    if eps >= 0.0 {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    Err(refusal.param(format!("eps {eps} is not 0 or above")))
}

/// What the kernel takes for granted.
fn check_back(gradient: Layout, x: Layout) -> Checked {
    let refusal = Refusal {
        op: "rms_norm_back",
        operands: &[("a", gradient), ("x", x)],
    };
    if gradient.ne != x.ne {
        return Err(refusal.shape("both must have the same shape"));
    }
    if gradient.dtype != x.dtype {
        return Err(refusal.dtype("both must be of the same type"));
    }
    Ok(())
}

/// Kernels divide by the number of groups, and round up what a group has.
fn check_groups(op: &'static str, a: Layout, groups: usize) -> Checked<i32> {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    let channels = a.ne[2];
    match i32::try_from(groups) {
        Ok(count) if count > 0 && channels.is_multiple_of(groups) => Ok(count),
        _ => Err(refusal.param(format!(
            "{groups} groups of {channels} channels are not equal"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F16, F32};
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn eps_is_a_number_that_is_not_negative() {
        let a = layout(F32, &[4]);
        check_eps("norm", a, 0.0).unwrap();
        for eps in [-1e-6, f32::NAN] {
            assert!(matches!(check_eps("norm", a, eps), Err(Refused::Param(_))));
        }
    }

    #[test]
    fn groups_are_equal() {
        let a = layout(F32, &[2, 2, 6]);
        for groups in [1, 2, 3, 6] {
            assert_eq!(check_groups("group_norm", a, groups), Ok(groups as i32));
        }
        for groups in [0, 4, 12, usize::MAX] {
            let refused = check_groups("group_norm", a, groups);
            assert!(matches!(refused, Err(Refused::Param(_))), "{groups}");
        }
    }

    #[test]
    fn a_gradient_looks_like_what_it_is_of() {
        let a = layout(F32, &[4, 2]);
        check_back(a, a).unwrap();
        let refused = check_back(a, layout(F32, &[4]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_back(a, layout(F16, &[4, 2]));
        assert!(matches!(refused, Err(Refused::DType(_))));
    }
}
