//! Ops that compute each element of the result from the elements at its place.

use std::f64::consts::{PI, SQRT_2};

use ggml_sys as sys;

use super::call::Call;
use super::memory::places;
use crate::error::Result;

/// `f` of each element.
pub fn map(call: &Call<'_>, f: impl Fn(f64) -> f64) -> Result<Vec<f64>> {
    Ok(call.src(0)?.values.iter().map(|&x| f(x)).collect())
}

/// `f` of each element of `a` and the element of `b` at its place, with `b` repeated over `a`.
pub fn zip(call: &Call<'_>, f: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>> {
    let (a, b) = (call.src(0)?, call.src(1)?);
    let pairs = a.values.iter().zip(places(a.ne));
    Ok(pairs.map(|(&x, at)| f(x, b.repeated(at))).collect())
}

/// ADD1: `b` is one value.
pub fn add1(call: &Call<'_>) -> Result<Vec<f64>> {
    let b = call.src(1)?.values[0];
    map(call, |x| x + b)
}

pub fn scale(call: &Call<'_>) -> Result<Vec<f64>> {
    let (factor, bias) = (call.float(0), call.float(1));
    map(call, |x| x * factor + bias)
}

pub fn clamp(call: &Call<'_>) -> Result<Vec<f64>> {
    let (min, max) = (call.float(0), call.float(1));
    map(call, |x| x.min(max).max(min))
}

pub fn leaky_relu(call: &Call<'_>) -> Result<Vec<f64>> {
    let slope = call.float(0);
    map(call, |x| if x > 0.0 { x } else { slope * x })
}

/// SILU_BACK: operand 0 is the gradient, operand 1 the op's input.
pub fn silu_back(call: &Call<'_>) -> Result<Vec<f64>> {
    zip(call, |gradient, x| {
        let s = sigmoid(x);
        gradient * s * (1.0 + x * (1.0 - s))
    })
}

/// FILL: every element is the parameter.
pub fn fill(call: &Call<'_>) -> Result<Vec<f64>> {
    Ok(vec![call.float(0); call.ne().iter().product()])
}

pub fn arange(call: &Call<'_>) -> Result<Vec<f64>> {
    let (start, step) = (call.float(0), call.float(2));
    let values = (0..call.ne()[0]).map(|i| start + step * i as f64);
    Ok(values.collect())
}

/// UNARY: parameter 0 says which function.
pub fn unary(call: &Call<'_>) -> Result<Vec<f64>> {
    match function(call.node.params[0]) {
        Some(Function::Plain(f)) => map(call, f),
        Some(Function::Xielu) | None => xielu(call),
    }
}

/// A unary function.
pub enum Function {
    Plain(fn(f64) -> f64),
    /// The one that has parameters.
    Xielu,
}

/// The function that ggml's number names; `None` for one without a definition here.
pub fn function(number: i32) -> Option<Function> {
    let f: fn(f64) -> f64 = match number as sys::ggml_unary_op {
        sys::GGML_UNARY_OP_ABS => f64::abs,
        sys::GGML_UNARY_OP_SGN => |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        sys::GGML_UNARY_OP_NEG => |x| -x,
        sys::GGML_UNARY_OP_STEP => |x| f64::from(u8::from(x > 0.0)),
        sys::GGML_UNARY_OP_TANH => f64::tanh,
        sys::GGML_UNARY_OP_ELU => |x| if x > 0.0 { x } else { x.exp_m1() },
        sys::GGML_UNARY_OP_RELU => relu,
        sys::GGML_UNARY_OP_SIGMOID => sigmoid,
        sys::GGML_UNARY_OP_GELU => gelu,
        sys::GGML_UNARY_OP_GELU_QUICK => gelu_quick,
        sys::GGML_UNARY_OP_GELU_ERF => gelu_erf,
        sys::GGML_UNARY_OP_SILU => silu,
        sys::GGML_UNARY_OP_HARDSWISH => |x| x * hard_sigmoid(x),
        sys::GGML_UNARY_OP_HARDSIGMOID => hard_sigmoid,
        sys::GGML_UNARY_OP_EXP => f64::exp,
        sys::GGML_UNARY_OP_EXPM1 => f64::exp_m1,
        sys::GGML_UNARY_OP_SOFTPLUS => softplus,
        sys::GGML_UNARY_OP_FLOOR => f64::floor,
        sys::GGML_UNARY_OP_CEIL => f64::ceil,
        sys::GGML_UNARY_OP_ROUND => f64::round,
        sys::GGML_UNARY_OP_TRUNC => f64::trunc,
        sys::GGML_UNARY_OP_XIELU => return Some(Function::Xielu),
        _ => return None,
    };
    Some(Function::Plain(f))
}

/// The parameters were computed by ggml when the node was made: slopes, the linear part, and a small negative bound.
fn xielu(call: &Call<'_>) -> Result<Vec<f64>> {
    let (negative, positive, beta, eps) =
        (call.float(1), call.float(2), call.float(3), call.float(4));
    map(call, |x| {
        if x > 0.0 {
            positive * x * x + beta * x
        } else {
            negative * (x.min(eps).exp_m1() - x) + beta * x
        }
    })
}

pub fn relu(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// ggml's GELU is the form with tanh. Its coefficient is an f32.
pub fn gelu(x: f64) -> f64 {
    let inner = (2.0 / PI).sqrt() * x * (1.0 + f64::from(0.044715_f32) * x * x);
    // The limit for minus infinity is 0, not the product of infinity and 0.
    0.5 * x.max(f64::MIN) * (1.0 + inner.tanh())
}

pub fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / SQRT_2))
}

pub fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(f64::from(1.702_f32) * x)
}

fn hard_sigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

/// Exact for large x as well, where exp(x) overflows.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
