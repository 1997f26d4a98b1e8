//! Functions of one element that have parameters.

use ggml_sys as sys;

use crate::dtype::DType::{F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::graph::ops::inplace;
use crate::layout::{Layout, Refusal};

impl Tensor<'_> {
    /// `a` where `a > 0`, else `slope * a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and all at one distance.
    #[doc(alias = "ggml_leaky_relu")]
    #[track_caller]
    pub fn leaky_relu(self, slope: f32) -> Result<Self> {
        let at = here();
        check_even_rows("leaky_relu", self.layout()).at(at)?;
        // SAFETY: the tensor is alive; ggml_leaky_relu asserts nothing.
        self.make("leaky_relu", |context| unsafe {
            sys::ggml_leaky_relu(context, self.as_ptr(), slope, false)
        })
    }

    /// [`Tensor::leaky_relu`], [in place](crate::graph::inplace): `ggml_leaky_relu` with `inplace` set.
    ///
    /// # Errors
    /// As [`Tensor::leaky_relu`]; also where elements share memory.
    #[track_caller]
    pub fn leaky_relu_inplace(self, slope: f32) -> Result<Self> {
        let at = here();
        const OP: &str = "leaky_relu_inplace";
        check_even_rows(OP, self.layout()).at(at)?;
        inplace::check(OP, self, &[]).at(at)?;
        // SAFETY: the tensor is alive; ggml_leaky_relu asserts nothing.
        self.make(OP, |context| unsafe {
            sys::ggml_leaky_relu(context, self.as_ptr(), slope, true)
        })
    }

    /// `min` where `a < min`, `max` where `a > max`, else `a`.
    ///
    /// NaN becomes `max` on the CPU, `min` on Metal.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `min <= max`; [`Error::Layout`](crate::Error::Layout) unless rows are
    /// packed and all at one distance.
    #[doc(alias = "ggml_clamp")]
    #[track_caller]
    pub fn clamp(self, min: f32, max: f32) -> Result<Self> {
        let at = here();
        check_clamp("clamp", self.layout(), min, max).at(at)?;
        // SAFETY: the tensor is alive; ggml_clamp asserts nothing.
        self.make("clamp", |context| unsafe {
            sys::ggml_clamp(context, self.as_ptr(), min, max)
        })
    }

    /// [`Tensor::clamp`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::clamp`]; also where elements share memory.
    #[doc(alias = "ggml_clamp_inplace")]
    #[track_caller]
    pub fn clamp_inplace(self, min: f32, max: f32) -> Result<Self> {
        let at = here();
        const OP: &str = "clamp_inplace";
        check_clamp(OP, self.layout(), min, max).at(at)?;
        inplace::check(OP, self, &[]).at(at)?;
        // SAFETY: the tensor is alive; ggml_clamp_inplace asserts nothing.
        self.make(OP, |context| unsafe {
            sys::ggml_clamp_inplace(context, self.as_ptr(), min, max)
        })
    }

    /// With `p = softplus(alpha_p)` and `n = beta + softplus(alpha_n)`: `p a^2 + beta a` where `a > 0`, else
    /// `n (exp(min(a, eps)) - 1 - a) + beta a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and all at one distance.
    #[doc(alias = "ggml_xielu")]
    #[track_caller]
    pub fn xielu(self, alpha_n: f32, alpha_p: f32, beta: f32, eps: f32) -> Result<Self> {
        let at = here();
        check_even_rows("xielu", self.layout()).at(at)?;
        // SAFETY: the tensor is alive; ggml_xielu asserts nothing.
        self.make("xielu", |context| unsafe {
            sys::ggml_xielu(context, self.as_ptr(), alpha_n, alpha_p, beta, eps)
        })
    }

    /// A tensor of the same type and shape, every element `value`, rounded to the type. The values of `a` are not read.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless F32 or F16; [`Error::Layout`](crate::Error::Layout) unless contiguous.
    #[doc(alias = "ggml_fill")]
    #[track_caller]
    pub fn fill(self, value: f32) -> Result<Self> {
        let at = here();
        check_fill("fill", self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_fill's assertions.
        self.make("fill", |context| unsafe {
            sys::ggml_fill(context, self.as_ptr(), value)
        })
    }

    /// [`Tensor::fill`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::fill`].
    #[doc(alias = "ggml_fill_inplace")]
    #[track_caller]
    pub fn fill_inplace(self, value: f32) -> Result<Self> {
        let at = here();
        check_fill("fill_inplace", self.layout()).at(at)?;
        inplace::check("fill_inplace", self, &[]).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_fill_inplace's assertions.
        self.make("fill_inplace", |context| unsafe {
            sys::ggml_fill_inplace(context, self.as_ptr(), value)
        })
    }

    /// The gradient of [`Tensor::silu`] at `x`, times `self`, the gradient of what came after it:
    /// `self * s * (1 + x * (1 - s))` with `s = sigmoid(x)`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless both shapes are equal; [`Error::DType`](crate::Error::DType) unless both
    /// types are; [`Error::Layout`](crate::Error::Layout) unless rows of both are packed and all at one distance.
    #[doc(alias = "ggml_silu_back")]
    #[track_caller]
    pub fn silu_back(self, x: Self) -> Result<Self> {
        let at = here();
        check_silu_back(self.layout(), x.layout()).at(at)?;
        // SAFETY: both tensors are alive; ggml_silu_back asserts nothing.
        self.make("silu_back", |context| unsafe {
            sys::ggml_silu_back(context, self.as_ptr(), x.as_ptr())
        })
    }
}

/// What kernels take for granted that step through all rows by `nb[1]`.
fn check_even_rows(op: &'static str, a: Layout) -> Checked {
    if a.is_contiguous_1() {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    Err(refusal.layout("rows must be packed and all at one distance: call cont() first"))
}

/// On some devices the result is undefined where `min > max`.
fn check_clamp(op: &'static str, a: Layout, min: f32, max: f32) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    // NaN compares as neither.
    if !matches!(min.partial_cmp(&max), Some(order) if order.is_le()) {
        return Err(refusal.param(format!(
            "the least value {min} is above the greatest, {max}"
        )));
    }
    check_even_rows(op, a)
}

/// Mirrors `ggml_fill_impl`.
fn check_fill(op: &'static str, a: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    if !matches!(a.dtype, F32 | F16) {
        return Err(refusal.dtype("only F32 and F16 are filled"));
    }
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    Ok(())
}

/// What the kernels take for granted: ggml checks nothing.
fn check_silu_back(gradient: Layout, x: Layout) -> Checked {
    let refusal = Refusal {
        op: "silu_back",
        operands: &[("a", gradient), ("x", x)],
    };
    if gradient.ne != x.ne {
        return Err(refusal.shape("both must have the same shape"));
    }
    if gradient.dtype != x.dtype {
        return Err(refusal.dtype("both must be of the same type"));
    }
    if !gradient.is_contiguous_1() || !x.is_contiguous_1() {
        return Err(
            refusal.layout("rows must be packed and all at one distance: call cont() first")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{BF16, I32};
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn bounds_are_in_order() {
        let a = layout(F32, &[4, 6]);
        check_clamp("clamp", a, -1.0, 1.0).unwrap();
        check_clamp("clamp", a, 1.0, 1.0).unwrap();
        check_clamp("clamp", a, f32::NEG_INFINITY, f32::INFINITY).unwrap();
        for (min, max) in [(1.0, -1.0), (f32::NAN, 1.0), (0.0, f32::NAN)] {
            let refused = check_clamp("clamp", a, min, max);
            assert!(matches!(refused, Err(Refused::Param(_))), "{min} {max}");
        }
        let refused = check_clamp("clamp", transposed(a), 0.0, 1.0);
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn only_contiguous_floats_are_filled() {
        check_fill("fill", layout(F16, &[4, 6])).unwrap();
        for dtype in [BF16, I32] {
            let refused = check_fill("fill", layout(dtype, &[4]));
            assert!(matches!(refused, Err(Refused::DType(_))));
        }
        let refused = check_fill("fill", transposed(layout(F32, &[4, 6])));
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn a_gradient_looks_like_what_it_is_of() {
        let a = layout(F32, &[4, 6]);
        check_silu_back(a, a).unwrap();
        let refused = check_silu_back(a, layout(F32, &[4, 5]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_silu_back(a, layout(F16, &[4, 6]));
        assert!(matches!(refused, Err(Refused::DType(_))));
        let spread = transposed(layout(F32, &[6, 4]));
        assert!(matches!(
            check_silu_back(a, spread),
            Err(Refused::Layout(_))
        ));
    }
}
