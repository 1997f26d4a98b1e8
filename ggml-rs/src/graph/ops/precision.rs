//! The precision with which products read their operands, and the route they take.

use ggml_sys as sys;

use crate::error::{Refused, Result, here};
use crate::graph::{Tensor, node};
use crate::guard;
use crate::layout::Refusal;

/// The least precision to which an op may convert an operand's values.
///
/// This is ggml's source precision, not that of the accumulator.
#[doc(alias = "ggml_prec")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// Left to the op. For OUT_PROD: f32.
    Undefined,
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// 8-bit blocks.
    Q8,
    /// 4-bit blocks.
    Q4,
}

impl Precision {
    fn raw(self) -> sys::ggml_prec {
        match self {
            Self::Undefined => sys::GGML_PREC_UNDEFINED,
            Self::F32 => sys::GGML_PREC_F32,
            Self::Bf16 => sys::GGML_PREC_BF16,
            Self::F16 => sys::GGML_PREC_F16,
            Self::Q8 => sys::GGML_PREC_Q8,
            Self::Q4 => sys::GGML_PREC_Q4,
        }
    }
}

/// How Metal's batched products hold their operands in threadgroup memory.
///
/// Without a choice OUT_PROD holds both as f32, MUL_MAT and MUL_MAT_ID hold both as f16 (with bf16 weights: as bf16).
/// `docs/precision.md` says what each choice costs and buys.
#[doc(alias = "ggml_staging")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Staging {
    /// Both as f32.
    Float,
    /// The weights (operand 0) as f32: MUL_MAT_ID only.
    FloatWeights,
    /// The activations (operand 1) as f32: MUL_MAT_ID only.
    FloatActivations,
    /// Both as f16. Not for OUT_PROD in training: gradients overflow it.
    Half,
}

impl Staging {
    fn raw(self) -> sys::ggml_staging {
        match self {
            Self::Float => sys::GGML_STAGING_FLOAT,
            Self::FloatWeights => sys::GGML_STAGING_FLOAT_SRC0,
            Self::FloatActivations => sys::GGML_STAGING_FLOAT_SRC1,
            Self::Half => sys::GGML_STAGING_HALF,
        }
    }

    /// The source precision of both operands that asks for it, where both have the same.
    fn precision(self, op: node::Op) -> Option<Precision> {
        match (self, op) {
            (Self::Float, _) => Some(Precision::F32),
            (Self::Half, node::Op::OutProd) => Some(Precision::F16),
            (Self::Half, _) => Some(Precision::Undefined),
            _ => None,
        }
    }
}

/// How a MUL_MAT with many rows of `b`, or an OUT_PROD, runs on Metal.
#[doc(alias = "ggml_mul_mat_route")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// MUL_MAT: as the device decides, batched from some number of rows on. OUT_PROD: its operands are copied into scratch, and
    /// multiplied there.
    Auto,
    /// MUL_MAT only: in the mat-vec kernels, which take one or a few rows at a time and convert no operand: to compare with.
    MatVec,
    /// OUT_PROD only: in one kernel, which stages both operands in float from where they lie. It takes no scratch.
    ///
    /// The kernel uses simdgroup matrices, where Metal's tensor API runs too. It has run on the simulated device only: whether it
    /// is faster on a GPU is not known. A device that cannot create it refuses the node, as does half staging.
    Direct,
}

/// Where Metal looks for the route of an OUT_PROD among its parameters, and the values there, as
/// `patches/src/ggml-metal/ggml-metal-out-prod.h` has them.
mod out_prod {
    pub const ROUTE: usize = 4;
    pub const SPLIT: i32 = 0;
    pub const DIRECT: i32 = 1;
}

impl Tensor<'_> {
    /// Sets the least precision to which this node may convert its operand `source` (0 is `a`, 1 is `b`).
    ///
    /// MUL_MAT takes both sources with any precision, MUL_MAT_ID `source` 1; OUT_PROD takes both, with f32 or f16. On
    /// Metal a MUL_MAT of which either source asks for more than f16 runs with [`Staging::Float`].
    ///
    /// On MUL_MAT_ID f32 asks for f32's range, not for its precision: Metal divides all of `b` by one power of two against
    /// overflow, and does not change its staging.
    ///
    /// A device refuses a node whose request its kernels would not meet. A CPU converts `b` to the type that it multiplies `a`
    /// with: f16 for weights of f16, bf16 for bf16, 8-bit blocks for quantized ones, which have f32's range for K-quants, IQ
    /// (but IQ4_NL) and TQ types alone. `docs/setters.md` has what every device does with every request and type.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a node or an operand that has no such setting.
    #[doc(alias = "ggml_prec_set_src")]
    #[track_caller]
    pub fn set_src_precision(self, precision: Precision, source: usize) -> Result<Self> {
        let at = here();
        let refuse = || {
            self.no_setting(
                "set_src_precision",
                format!("this node does not take {precision:?} for operand {source}"),
            )
            .at(at)
        };
        // Two operands are the most that any op with this setting has; ggml asserts on its own bound.
        let source = i32::try_from(source)
            .ok()
            .filter(|&source| source < 2)
            .ok_or_else(refuse)?;
        // SAFETY: the tensor is alive; ggml only writes the node's parameters.
        let accepted = guard::call("set_src_precision", || unsafe {
            sys::ggml_prec_set_src(self.as_ptr(), precision.raw(), source)
        })?;
        if accepted { Ok(self) } else { Err(refuse()) }
    }

    /// Sets how Metal stages the operands of this OUT_PROD, MUL_MAT or MUL_MAT_ID.
    ///
    /// Where Metal's tensor API runs (see [`Device::tensor_api`](crate::Device::tensor_api)) OUT_PROD and MUL_MAT stage `a`
    /// alone, and read `b` in place. Float staging of a MUL_MAT runs batched from 32 rows of `b` on where `ne[0]` is a multiple
    /// of 32, else as products of a matrix and a vector, which are float. A CPU device refuses a MUL_MAT or MUL_MAT_ID whose
    /// operands its kernels would round although float was asked for.
    ///
    /// ```
    /// use ggml_rs::{DType, Graph, Staging};
    ///
    /// // Logits that decide which experts run: float operands, whichever device computes them.
    /// Graph::build(|g| {
    ///     let (router, _) = g.input("router", DType::F32, [4096, 64])?;
    ///     let (tokens, _) = g.input("tokens", DType::F32, [4096, 512])?;
    ///     g.output("logits", router.mul_mat(tokens)?.set_staging(Staging::Float)?)
    /// })?;
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for another op, and for one operand alone on OUT_PROD and MUL_MAT.
    #[doc(alias = "ggml_mul_mat_id_set_staging")]
    #[track_caller]
    pub fn set_staging(self, staging: Staging) -> Result<Self> {
        let at = here();
        // SAFETY: the builder's tensors are alive.
        match unsafe { node::op(self.ptr()) } {
            Some(node::Op::MulMatId) => {
                // SAFETY: the tensor is alive, and its op is the one that ggml asserts.
                guard::call("set_staging", || unsafe {
                    sys::ggml_mul_mat_id_set_staging(self.as_ptr(), staging.raw());
                })?;
                Ok(self)
            }
            Some(op @ (node::Op::OutProd | node::Op::MulMat)) => {
                let precision = staging.precision(op).ok_or_else(|| {
                    self.no_setting(
                        "set_staging",
                        "only a mul_mat_id stages one operand alone as float",
                    )
                    .at(at)
                })?;
                self.set_src_precision(precision, 0)?
                    .set_src_precision(precision, 1)
            }
            _ => Err(self
                .no_setting(
                    "set_staging",
                    "only out_prod, mul_mat and mul_mat_id have a staging",
                )
                .at(at)),
        }
    }

    /// Sets how this MUL_MAT or OUT_PROD runs on Metal. Other devices have no routes, take no notice, and promise nothing by it: for
    /// operands that are not rounded, on whichever device, there is [`Tensor::set_staging`].
    ///
    /// ```
    /// use ggml_rs::{DType, Graph, Route};
    ///
    /// Graph::build(|g| {
    ///     let (weight, _) = g.input("weight", DType::Q4_K, [256, 40])?;
    ///     let (gradient, _) = g.input("gradient", DType::F32, [33, 40])?;
    ///     g.output("product", weight.out_prod(gradient)?.set_route(Route::Direct)?)
    /// })?;
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for another op, and for a route that the op does not have.
    #[doc(alias = "ggml_mul_mat_set_route")]
    #[track_caller]
    pub fn set_route(self, route: Route) -> Result<Self> {
        let at = here();
        // SAFETY: the builder's tensors are alive.
        match (unsafe { node::op(self.ptr()) }, route) {
            (Some(node::Op::MulMat), Route::Auto) => {
                self.set_mul_mat_route(sys::GGML_MUL_MAT_ROUTE_AUTO)
            }
            (Some(node::Op::MulMat), Route::MatVec) => {
                self.set_mul_mat_route(sys::GGML_MUL_MAT_ROUTE_MAT_VEC)
            }
            (Some(node::Op::OutProd), Route::Auto) => Ok(self.set_out_prod_route(out_prod::SPLIT)),
            (Some(node::Op::OutProd), Route::Direct) => {
                Ok(self.set_out_prod_route(out_prod::DIRECT))
            }
            (Some(node::Op::MulMat | node::Op::OutProd), other) => Err(self
                .no_setting("set_route", format!("this node has no route {other:?}"))
                .at(at)),
            _ => Err(self
                .no_setting("set_route", "only a mul_mat and an out_prod have a route")
                .at(at)),
        }
    }

    #[track_caller]
    fn set_mul_mat_route(self, route: sys::ggml_mul_mat_route) -> Result<Self> {
        // SAFETY: the tensor is alive, and its op is the one that ggml asserts.
        guard::call("set_route", || unsafe {
            sys::ggml_mul_mat_set_route(self.as_ptr(), route);
        })?;
        Ok(self)
    }

    /// ggml has no function for it: the route is ours, and Metal's alone.
    fn set_out_prod_route(self, route: i32) -> Self {
        // SAFETY: the tensor is alive and an OUT_PROD, whose parameters nothing else looks at until a graph runs.
        unsafe { (*self.as_ptr()).op_params[out_prod::ROUTE] = route };
        self
    }

    fn no_setting(self, op: &'static str, detail: impl Into<String>) -> Refused {
        Refusal {
            op,
            operands: &[("node", self.layout())],
        }
        .param(detail)
    }
}
