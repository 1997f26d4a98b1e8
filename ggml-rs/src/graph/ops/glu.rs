//! Gated linear units: a function of one half, times the other half.

use ggml_sys as sys;

use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// The function of the gate in [`Tensor::glu`].
#[doc(alias = "ggml_glu_op")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GluOp {
    /// [`Tensor::relu`]. Where it is 0 the result is 0, whatever the other factor.
    Reglu,
    /// [`Tensor::gelu`].
    Geglu,
    /// [`Tensor::silu`].
    Swiglu,
    /// [`Tensor::gelu_erf`].
    GegluErf,
    /// [`Tensor::gelu_quick`].
    GegluQuick,
}

impl GluOp {
    fn raw(self) -> sys::ggml_glu_op {
        match self {
            Self::Reglu => sys::GGML_GLU_OP_REGLU,
            Self::Geglu => sys::GGML_GLU_OP_GEGLU,
            Self::Swiglu => sys::GGML_GLU_OP_SWIGLU,
            Self::GegluErf => sys::GGML_GLU_OP_GEGLU_ERF,
            Self::GegluQuick => sys::GGML_GLU_OP_GEGLU_QUICK,
        }
    }
}

impl<'g> Tensor<'g> {
    /// `f(x) * y`, where `x` is the first half of each row and `y` the second: `[2n, ...]` becomes `[n, ...]`.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// use ggml_rs::graph::GluOp;
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [4, 1])?;
    ///     Ok((x_in, g.output("y", x.glu(GluOp::Reglu)?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[2.0, -2.0, 5.0, 7.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [10.0, 0.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[0]` is even; [`Error::Layout`](crate::Error::Layout) unless rows are packed and all at
    /// one distance.
    #[doc(alias = "ggml_glu")]
    #[doc(alias = "ggml_reglu")]
    #[doc(alias = "ggml_geglu")]
    #[doc(alias = "ggml_swiglu")]
    #[doc(alias = "ggml_geglu_erf")]
    #[doc(alias = "ggml_geglu_quick")]
    #[track_caller]
    pub fn glu(self, function: GluOp) -> Result<Self> {
        self.halves("glu", function, false)
    }

    /// [`Tensor::glu`] with the halves exchanged: `x` is the second, `y` the first.
    ///
    /// # Errors
    /// As [`Tensor::glu`].
    #[doc(alias = "ggml_reglu_swapped")]
    #[doc(alias = "ggml_geglu_swapped")]
    #[doc(alias = "ggml_swiglu_swapped")]
    #[doc(alias = "ggml_geglu_erf_swapped")]
    #[doc(alias = "ggml_geglu_quick_swapped")]
    #[track_caller]
    pub fn glu_swapped(self, function: GluOp) -> Result<Self> {
        self.halves("glu_swapped", function, true)
    }

    /// `f(a) * b` element by element.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless both shapes are equal; [`Error::DType`](crate::Error::DType) unless both types are;
    /// [`Error::Layout`](crate::Error::Layout) unless rows of both are packed and all at one distance.
    #[doc(alias = "ggml_glu_split")]
    #[doc(alias = "ggml_reglu_split")]
    #[doc(alias = "ggml_geglu_split")]
    #[doc(alias = "ggml_swiglu_split")]
    #[doc(alias = "ggml_geglu_erf_split")]
    #[doc(alias = "ggml_geglu_quick_split")]
    #[track_caller]
    pub fn glu_split(self, b: Tensor<'g>, function: GluOp) -> Result<Self> {
        let at = here();
        check_split("glu_split", self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_glu_impl's assertions.
        self.make("glu_split", |context| unsafe {
            sys::ggml_glu_split(context, self.as_ptr(), b.as_ptr(), function.raw())
        })
    }

    /// `x / (1 + exp(-alpha x)) * (y + 1)` with `x = min(a, limit)` and `y` the nearest to `b` in `[-limit, limit]`.
    ///
    /// The CPU keeps NaN; on Metal it becomes one of the bounds.
    ///
    /// # Errors
    /// As [`Tensor::glu_split`]; [`Error::Param`](crate::Error::Param) unless `limit >= 0`.
    #[doc(alias = "ggml_swiglu_oai")]
    #[track_caller]
    pub fn swiglu_oai(self, b: Tensor<'g>, alpha: f32, limit: f32) -> Result<Self> {
        let at = here();
        check_limit("swiglu_oai", self.layout(), b.layout(), limit).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_glu_impl's assertions.
        self.make("swiglu_oai", |context| unsafe {
            sys::ggml_swiglu_oai(context, self.as_ptr(), b.as_ptr(), alpha, limit)
        })
    }

    /// `silu(x) * y` with `x = min(a, limit)` and `y` the nearest to `b` in `[-limit, limit]`.
    ///
    /// The CPU keeps NaN; on Metal it becomes one of the bounds.
    ///
    /// # Errors
    /// As [`Tensor::glu_split`]; [`Error::Param`](crate::Error::Param) unless `limit >= 0`.
    #[doc(alias = "ggml_swiglu_clamp")]
    #[track_caller]
    pub fn swiglu_clamp(self, b: Tensor<'g>, limit: f32) -> Result<Self> {
        let at = here();
        check_limit("swiglu_clamp", self.layout(), b.layout(), limit).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_glu_impl's assertions.
        self.make("swiglu_clamp", |context| unsafe {
            sys::ggml_swiglu_clamp(context, self.as_ptr(), b.as_ptr(), limit)
        })
    }

    #[track_caller]
    fn halves(self, op: &'static str, function: GluOp, swapped: bool) -> Result<Self> {
        let at = here();
        check_halves(op, self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_glu_impl's assertion.
        self.make(op, |context| unsafe {
            sys::ggml_glu(context, self.as_ptr(), function.raw(), swapped)
        })
    }
}

const ROWS: &str = "rows must be packed and all at one distance: call cont() first";

/// Mirrors `ggml_glu_impl` without `b`. ggml halves an odd row too, and leaves its last element out.
fn check_halves(op: &'static str, a: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    if !a.ne[0].is_multiple_of(2) {
        return Err(refusal.shape("ne[0] must be even: a row is two halves"));
    }
    if !a.is_contiguous_1() {
        return Err(refusal.layout(ROWS));
    }
    refusal.check_result(a.dtype, [a.ne[0] / 2, a.ne[1], a.ne[2], a.ne[3]])
}

/// Mirrors `ggml_glu_impl` with `b`.
#[inline]
fn check_split(op: &'static str, a: Layout, b: Layout) -> Checked {
    let rows = a.is_contiguous_1() && b.is_contiguous_1();
    if a.ne == b.ne && a.dtype == b.dtype && rows {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    if a.ne != b.ne {
        return Err(refusal.shape("both must have the same shape"));
    }
    if a.dtype != b.dtype {
        return Err(refusal.dtype("both must be of the same type"));
    }
    Err(refusal.layout(ROWS))
}

/// The kernels' `clamp` is undefined for an interval whose ends are exchanged.
fn check_limit(op: &'static str, a: Layout, b: Layout, limit: f32) -> Checked {
    if limit >= 0.0 {
        return check_split(op, a, b);
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    Err(refusal.param(format!("the limit {limit} is not 0 or above")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F16, F32, Q8_0};
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn rows_are_two_halves() {
        check_halves("glu", layout(F32, &[6, 4])).unwrap();
        for odd in [layout(F32, &[5, 4]), layout(F32, &[1]), layout(Q8_0, &[32])] {
            assert!(matches!(check_halves("glu", odd), Err(Refused::Shape(_))));
        }
        let spread = transposed(layout(F32, &[4, 6]));
        assert!(matches!(
            check_halves("glu", spread),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn gate_and_value_look_alike() {
        let a = layout(F32, &[6, 4]);
        check_split("glu_split", a, a).unwrap();
        let refused = check_split("glu_split", a, layout(F32, &[6]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_split("glu_split", a, layout(F16, &[6, 4]));
        assert!(matches!(refused, Err(Refused::DType(_))));
        let refused = check_split("glu_split", a, transposed(layout(F32, &[4, 6])));
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn limits_are_not_negative() {
        let a = layout(F32, &[6, 4]);
        check_limit("swiglu_clamp", a, a, 0.0).unwrap();
        for limit in [-1.0, f32::NAN] {
            let refused = check_limit("swiglu_clamp", a, a, limit);
            assert!(matches!(refused, Err(Refused::Param(_))));
        }
    }
}
