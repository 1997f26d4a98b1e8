//! The same, written over their operand: see [`inplace`](crate::graph::inplace).

use ggml_sys as sys;

use super::{Function, check_rows};
use crate::error::{Placed, Result, here};
use crate::graph::Tensor;
use crate::graph::ops::inplace;

impl Tensor<'_> {
    /// [`Tensor::abs`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_abs_inplace")]
    #[track_caller]
    pub fn abs_inplace(self) -> Result<Self> {
        self.unary_inplace("abs_inplace", Function::Unary(sys::GGML_UNARY_OP_ABS))
    }

    /// [`Tensor::sgn`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_sgn_inplace")]
    #[track_caller]
    pub fn sgn_inplace(self) -> Result<Self> {
        self.unary_inplace("sgn_inplace", Function::Unary(sys::GGML_UNARY_OP_SGN))
    }

    /// [`Tensor::neg`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_neg_inplace")]
    #[track_caller]
    pub fn neg_inplace(self) -> Result<Self> {
        self.unary_inplace("neg_inplace", Function::Unary(sys::GGML_UNARY_OP_NEG))
    }

    /// [`Tensor::step`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_step_inplace")]
    #[track_caller]
    pub fn step_inplace(self) -> Result<Self> {
        self.unary_inplace("step_inplace", Function::Unary(sys::GGML_UNARY_OP_STEP))
    }

    /// [`Tensor::tanh`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_tanh_inplace")]
    #[track_caller]
    pub fn tanh_inplace(self) -> Result<Self> {
        self.unary_inplace("tanh_inplace", Function::Unary(sys::GGML_UNARY_OP_TANH))
    }

    /// [`Tensor::elu`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_elu_inplace")]
    #[track_caller]
    pub fn elu_inplace(self) -> Result<Self> {
        self.unary_inplace("elu_inplace", Function::Unary(sys::GGML_UNARY_OP_ELU))
    }

    /// [`Tensor::relu`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_relu_inplace")]
    #[track_caller]
    pub fn relu_inplace(self) -> Result<Self> {
        self.unary_inplace("relu_inplace", Function::Unary(sys::GGML_UNARY_OP_RELU))
    }

    /// [`Tensor::sigmoid`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_sigmoid_inplace")]
    #[track_caller]
    pub fn sigmoid_inplace(self) -> Result<Self> {
        self.unary_inplace(
            "sigmoid_inplace",
            Function::Unary(sys::GGML_UNARY_OP_SIGMOID),
        )
    }

    /// [`Tensor::gelu`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_gelu_inplace")]
    #[track_caller]
    pub fn gelu_inplace(self) -> Result<Self> {
        self.unary_inplace("gelu_inplace", Function::Unary(sys::GGML_UNARY_OP_GELU))
    }

    /// [`Tensor::gelu_erf`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_gelu_erf_inplace")]
    #[track_caller]
    pub fn gelu_erf_inplace(self) -> Result<Self> {
        self.unary_inplace(
            "gelu_erf_inplace",
            Function::Unary(sys::GGML_UNARY_OP_GELU_ERF),
        )
    }

    /// [`Tensor::gelu_quick`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_gelu_quick_inplace")]
    #[track_caller]
    pub fn gelu_quick_inplace(self) -> Result<Self> {
        self.unary_inplace(
            "gelu_quick_inplace",
            Function::Unary(sys::GGML_UNARY_OP_GELU_QUICK),
        )
    }

    /// [`Tensor::silu`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_silu_inplace")]
    #[track_caller]
    pub fn silu_inplace(self) -> Result<Self> {
        self.unary_inplace("silu_inplace", Function::Unary(sys::GGML_UNARY_OP_SILU))
    }

    /// [`Tensor::exp`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_exp_inplace")]
    #[track_caller]
    pub fn exp_inplace(self) -> Result<Self> {
        self.unary_inplace("exp_inplace", Function::Unary(sys::GGML_UNARY_OP_EXP))
    }

    /// [`Tensor::expm1`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_expm1_inplace")]
    #[track_caller]
    pub fn expm1_inplace(self) -> Result<Self> {
        self.unary_inplace("expm1_inplace", Function::Unary(sys::GGML_UNARY_OP_EXPM1))
    }

    /// [`Tensor::softplus`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_softplus_inplace")]
    #[track_caller]
    pub fn softplus_inplace(self) -> Result<Self> {
        self.unary_inplace(
            "softplus_inplace",
            Function::Unary(sys::GGML_UNARY_OP_SOFTPLUS),
        )
    }

    /// [`Tensor::floor`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_floor_inplace")]
    #[track_caller]
    pub fn floor_inplace(self) -> Result<Self> {
        self.unary_inplace("floor_inplace", Function::Unary(sys::GGML_UNARY_OP_FLOOR))
    }

    /// [`Tensor::ceil`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_ceil_inplace")]
    #[track_caller]
    pub fn ceil_inplace(self) -> Result<Self> {
        self.unary_inplace("ceil_inplace", Function::Unary(sys::GGML_UNARY_OP_CEIL))
    }

    /// [`Tensor::round`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_round_inplace")]
    #[track_caller]
    pub fn round_inplace(self) -> Result<Self> {
        self.unary_inplace("round_inplace", Function::Unary(sys::GGML_UNARY_OP_ROUND))
    }

    /// [`Tensor::trunc`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_trunc_inplace")]
    #[track_caller]
    pub fn trunc_inplace(self) -> Result<Self> {
        self.unary_inplace("trunc_inplace", Function::Unary(sys::GGML_UNARY_OP_TRUNC))
    }

    /// [`Tensor::sqr`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_sqr_inplace")]
    #[track_caller]
    pub fn sqr_inplace(self) -> Result<Self> {
        self.unary_inplace("sqr_inplace", Function::Sqr)
    }

    /// [`Tensor::sqrt`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_sqrt_inplace")]
    #[track_caller]
    pub fn sqrt_inplace(self) -> Result<Self> {
        self.unary_inplace("sqrt_inplace", Function::Sqrt)
    }

    /// [`Tensor::log`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_log_inplace")]
    #[track_caller]
    pub fn log_inplace(self) -> Result<Self> {
        self.unary_inplace("log_inplace", Function::Log)
    }

    /// [`Tensor::sin`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_sin_inplace")]
    #[track_caller]
    pub fn sin_inplace(self) -> Result<Self> {
        self.unary_inplace("sin_inplace", Function::Sin)
    }

    /// [`Tensor::cos`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and elements lie apart.
    #[doc(alias = "ggml_cos_inplace")]
    #[track_caller]
    pub fn cos_inplace(self) -> Result<Self> {
        self.unary_inplace("cos_inplace", Function::Cos)
    }

    #[doc(alias = "ggml_unary_inplace")]
    #[track_caller]
    fn unary_inplace(self, op: &'static str, function: Function) -> Result<Self> {
        let at = here();
        check_rows(op, self.layout()).at(at)?;
        inplace::check(op, self, &[]).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_unary_impl's assertion.
        self.make(op, |context| unsafe {
            function.node_inplace(context, self.as_ptr())
        })
    }
}
