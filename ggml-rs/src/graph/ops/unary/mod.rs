//! Functions of one element. All take F32, F16 and BF16 on the CPU, and F32 and F16 on Metal.

mod inplace;
mod parametric;

use ggml_sys as sys;

use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

#[allow(
    clippy::should_implement_trait,
    reason = "ggml's names; operators cannot return errors"
)]
impl Tensor<'_> {
    /// `|a|`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_abs")]
    #[track_caller]
    pub fn abs(self) -> Result<Self> {
        self.unary("abs", Function::Unary(sys::GGML_UNARY_OP_ABS))
    }

    /// The sign: `1` where `a > 0`, `-1` where `a < 0`, else `0`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_sgn")]
    #[track_caller]
    pub fn sgn(self) -> Result<Self> {
        self.unary("sgn", Function::Unary(sys::GGML_UNARY_OP_SGN))
    }

    /// `-a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_neg")]
    #[track_caller]
    pub fn neg(self) -> Result<Self> {
        self.unary("neg", Function::Unary(sys::GGML_UNARY_OP_NEG))
    }

    /// `1` where `a > 0`, else `0`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_step")]
    #[track_caller]
    pub fn step(self) -> Result<Self> {
        self.unary("step", Function::Unary(sys::GGML_UNARY_OP_STEP))
    }

    /// The hyperbolic tangent.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_tanh")]
    #[track_caller]
    pub fn tanh(self) -> Result<Self> {
        self.unary("tanh", Function::Unary(sys::GGML_UNARY_OP_TANH))
    }

    /// `a` where `a > 0`, else `exp(a) - 1`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_elu")]
    #[track_caller]
    pub fn elu(self) -> Result<Self> {
        self.unary("elu", Function::Unary(sys::GGML_UNARY_OP_ELU))
    }

    /// `max(a, 0)`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_relu")]
    #[track_caller]
    pub fn relu(self) -> Result<Self> {
        self.unary("relu", Function::Unary(sys::GGML_UNARY_OP_RELU))
    }

    /// `1 / (1 + exp(-a))`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_sigmoid")]
    #[track_caller]
    pub fn sigmoid(self) -> Result<Self> {
        self.unary("sigmoid", Function::Unary(sys::GGML_UNARY_OP_SIGMOID))
    }

    /// `a/2 * (1 + tanh(sqrt(2/pi) * a * (1 + 0.044715 a^2)))`, the usual approximation of `a * Phi(a)`. The CPU looks it up
    /// for `a` rounded to f16.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_gelu")]
    #[track_caller]
    pub fn gelu(self) -> Result<Self> {
        self.unary("gelu", Function::Unary(sys::GGML_UNARY_OP_GELU))
    }

    /// `a/2 * (1 + erf(a / sqrt(2)))`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_gelu_erf")]
    #[track_caller]
    pub fn gelu_erf(self) -> Result<Self> {
        self.unary("gelu_erf", Function::Unary(sys::GGML_UNARY_OP_GELU_ERF))
    }

    /// `a / (1 + exp(-1.702 a))`. The CPU looks it up for `a` rounded to f16.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_gelu_quick")]
    #[track_caller]
    pub fn gelu_quick(self) -> Result<Self> {
        self.unary("gelu_quick", Function::Unary(sys::GGML_UNARY_OP_GELU_QUICK))
    }

    /// `a / (1 + exp(-a))`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_silu")]
    #[track_caller]
    pub fn silu(self) -> Result<Self> {
        self.unary("silu", Function::Unary(sys::GGML_UNARY_OP_SILU))
    }

    /// `a * min(1, max(0, (a + 3) / 6))`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_hardswish")]
    #[track_caller]
    pub fn hardswish(self) -> Result<Self> {
        self.unary("hardswish", Function::Unary(sys::GGML_UNARY_OP_HARDSWISH))
    }

    /// `min(1, max(0, (a + 3) / 6))`.
    ///
    /// NaN becomes 0 on the CPU, 1 on Metal.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_hardsigmoid")]
    #[track_caller]
    pub fn hardsigmoid(self) -> Result<Self> {
        self.unary(
            "hardsigmoid",
            Function::Unary(sys::GGML_UNARY_OP_HARDSIGMOID),
        )
    }

    /// `e` to the power of `a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_exp")]
    #[track_caller]
    pub fn exp(self) -> Result<Self> {
        self.unary("exp", Function::Unary(sys::GGML_UNARY_OP_EXP))
    }

    /// `exp(a) - 1`, computed so: near 0 it is no more exact than `exp`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_expm1")]
    #[track_caller]
    pub fn expm1(self) -> Result<Self> {
        self.unary("expm1", Function::Unary(sys::GGML_UNARY_OP_EXPM1))
    }

    /// `log(1 + exp(a))`, and `a` itself where `a > 20`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_softplus")]
    #[track_caller]
    pub fn softplus(self) -> Result<Self> {
        self.unary("softplus", Function::Unary(sys::GGML_UNARY_OP_SOFTPLUS))
    }

    /// The largest integer that is not above `a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_floor")]
    #[track_caller]
    pub fn floor(self) -> Result<Self> {
        self.unary("floor", Function::Unary(sys::GGML_UNARY_OP_FLOOR))
    }

    /// The smallest integer that is not below `a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_ceil")]
    #[track_caller]
    pub fn ceil(self) -> Result<Self> {
        self.unary("ceil", Function::Unary(sys::GGML_UNARY_OP_CEIL))
    }

    /// The nearest integer, away from 0 where two are as near.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_round")]
    #[track_caller]
    pub fn round(self) -> Result<Self> {
        self.unary("round", Function::Unary(sys::GGML_UNARY_OP_ROUND))
    }

    /// The integer part.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_trunc")]
    #[track_caller]
    pub fn trunc(self) -> Result<Self> {
        self.unary("trunc", Function::Unary(sys::GGML_UNARY_OP_TRUNC))
    }

    /// `a * a`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_sqr")]
    #[track_caller]
    pub fn sqr(self) -> Result<Self> {
        self.unary("sqr", Function::Sqr)
    }

    /// The square root; NaN below 0.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_sqrt")]
    #[track_caller]
    pub fn sqrt(self) -> Result<Self> {
        self.unary("sqrt", Function::Sqrt)
    }

    /// The natural logarithm; NaN below 0.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_log")]
    #[track_caller]
    pub fn log(self) -> Result<Self> {
        self.unary("log", Function::Log)
    }

    /// The sine.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_sin")]
    #[track_caller]
    pub fn sin(self) -> Result<Self> {
        self.unary("sin", Function::Sin)
    }

    /// The cosine.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_cos")]
    #[track_caller]
    pub fn cos(self) -> Result<Self> {
        self.unary("cos", Function::Cos)
    }

    #[doc(alias = "ggml_unary")]
    #[track_caller]
    fn unary(self, op: &'static str, function: Function) -> Result<Self> {
        let at = here();
        check_rows(op, self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_unary_impl's assertion.
        self.make(op, |context| unsafe {
            function.node(context, self.as_ptr())
        })
    }
}

/// What is computed: one of `GGML_OP_UNARY`'s functions, or an op of its own.
#[derive(Debug, Clone, Copy)]
enum Function {
    Unary(sys::ggml_unary_op),
    Sqr,
    Sqrt,
    Log,
    Sin,
    Cos,
}

impl Function {
    /// A node with a result of its own.
    ///
    /// # Safety
    /// The context must have room for a tensor, and `a` must be alive, with contiguous rows.
    unsafe fn node(
        self,
        context: *mut sys::ggml_context,
        a: *mut sys::ggml_tensor,
    ) -> *mut sys::ggml_tensor {
        // SAFETY: the caller vouches for both.
        unsafe {
            match self {
                Self::Unary(function) => sys::ggml_unary(context, a, function),
                Self::Sqr => sys::ggml_sqr(context, a),
                Self::Sqrt => sys::ggml_sqrt(context, a),
                Self::Log => sys::ggml_log(context, a),
                Self::Sin => sys::ggml_sin(context, a),
                Self::Cos => sys::ggml_cos(context, a),
            }
        }
    }

    /// A node whose result is a view of `a`.
    ///
    /// # Safety
    /// As [`Function::node`].
    unsafe fn node_inplace(
        self,
        context: *mut sys::ggml_context,
        a: *mut sys::ggml_tensor,
    ) -> *mut sys::ggml_tensor {
        // SAFETY: the caller vouches for both.
        unsafe {
            match self {
                Self::Unary(function) => sys::ggml_unary_inplace(context, a, function),
                Self::Sqr => sys::ggml_sqr_inplace(context, a),
                Self::Sqrt => sys::ggml_sqrt_inplace(context, a),
                Self::Log => sys::ggml_log_inplace(context, a),
                Self::Sin => sys::ggml_sin_inplace(context, a),
                Self::Cos => sys::ggml_cos_inplace(context, a),
            }
        }
    }
}

/// Mirrors `ggml_unary_impl`. The other ops assert the same while they compute.
#[inline]
pub(super) fn check_rows(op: &'static str, a: Layout) -> Checked {
    if a.has_contiguous_rows() {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    Err(refusal.layout("rows must be packed: call cont() first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn rows_must_be_packed() {
        check_rows("relu", layout(DType::F32, &[4, 6])).unwrap();
        assert!(matches!(
            check_rows("relu", transposed(layout(DType::F32, &[4, 6]))),
            Err(Refused::Layout(_))
        ));
    }
}
