//! Gated linear units: a function of one half, times the other.

use ggml_sys as sys;

use super::call::{Call, Operand};
use super::elementwise::{gelu, gelu_erf, gelu_quick, sigmoid, silu};
use crate::error::Result;

/// Parameters of a GLU.
struct Params {
    function: sys::ggml_glu_op,
    /// Whether a fused operand holds the linear half first.
    swapped: bool,
    alpha: f64,
    limit: f64,
}

impl Params {
    fn read(call: &Call<'_>) -> Self {
        Self {
            function: call.int(0) as sys::ggml_glu_op,
            swapped: call.int(1) != 0,
            alpha: call.float(2),
            limit: call.float(3),
        }
    }

    /// The result from the gated and the linear value.
    fn gate(&self, x: f64, linear: f64) -> f64 {
        match self.function {
            // Where the gate is closed, not even NaN passes.
            sys::GGML_GLU_OP_REGLU if x > 0.0 => x * linear,
            sys::GGML_GLU_OP_REGLU => 0.0,
            sys::GGML_GLU_OP_GEGLU => gelu(x) * linear,
            sys::GGML_GLU_OP_SWIGLU => silu(x) * linear,
            sys::GGML_GLU_OP_GEGLU_ERF => gelu_erf(x) * linear,
            sys::GGML_GLU_OP_GEGLU_QUICK => gelu_quick(x) * linear,
            sys::GGML_GLU_OP_SWIGLU_OAI => {
                let x = x.min(self.limit);
                x * sigmoid(self.alpha * x) * (self.bounded(linear) + 1.0)
            }
            sys::GGML_GLU_OP_SWIGLU_CLAMP => silu(x.min(self.limit)) * self.bounded(linear),
            // `is_defined` was asked before.
            _ => f64::NAN,
        }
    }

    fn bounded(&self, x: f64) -> f64 {
        x.max(-self.limit).min(self.limit)
    }
}

/// Whether ggml's number names a function that is defined here.
pub fn is_defined(number: i32) -> bool {
    (0..=sys::GGML_GLU_OP_SWIGLU_CLAMP).contains(&number)
}

/// GLU: of two operands, or of the two halves of each row of one.
pub fn glu(call: &Call<'_>) -> Result<Vec<f64>> {
    let (params, a) = (Params::read(call), call.src(0)?);
    Ok(match call.optional(1) {
        Some(b) => pairs(&params, &a.values, &b.values).collect(),
        None => fused(&params, &a),
    })
}

fn fused(params: &Params, a: &Operand<'_>) -> Vec<f64> {
    let half = a.ne[0] / 2;
    let mut out = Vec::with_capacity(a.values.len() / 2);
    for row in a.rows() {
        let (first, second) = row.split_at(half);
        let (gated, linear) = if params.swapped {
            (second, first)
        } else {
            (first, second)
        };
        out.extend(pairs(params, gated, linear));
    }
    out
}

fn pairs<'a>(
    params: &'a Params,
    gated: &'a [f64],
    linear: &'a [f64],
) -> impl Iterator<Item = f64> + 'a {
    let pairs = gated.iter().zip(linear);
    pairs.map(move |(&x, &linear)| params.gate(x, linear))
}
