//! Functions of one element: g times their slope.

use std::f32::consts::PI;

use crate::error::Result;
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Gradient, Grads};
use crate::graph::node::Unary;

/// The gradient of a function, if it is not flat.
pub(super) fn unary(function: Unary) -> Option<Gradient> {
    Some(match function {
        Unary::Neg => |_, g| g.neg().map(Grads::first),
        Unary::Silu => |grad, g| g.silu_back(grad.source(0)?.packed()?).map(Grads::first),
        Unary::Abs => |grad, g| times(g, grad.source(0)?.packed()?.sgn()?),
        Unary::Relu => |grad, g| times(g, grad.source(0)?.packed()?.step()?),
        Unary::Exp => |grad, g| times(g, grad.y.packed()?),
        Unary::Expm1 => |grad, g| times(g, grad.source(0)?.packed()?.exp()?),
        Unary::Softplus => |grad, g| times(g, grad.source(0)?.packed()?.sigmoid()?),
        Unary::Gelu => |grad, g| times(g, gelu_slope(grad.source(0)?.packed()?)?),
        Unary::GeluErf => |grad, g| times(g, gelu_erf_slope(grad.source(0)?.packed()?)?),
        Unary::GeluQuick => |grad, g| times(g, swish_slope(grad.source(0)?.packed()?, 1.702)?),
        Unary::Hardswish => |grad, g| times(g, hardswish_slope(grad.source(0)?.packed()?)?),
        Unary::Hardsigmoid => |grad, g| times(g, ramp_slope(grad.source(0)?.packed()?)?),
        Unary::Sigmoid => |grad, g| {
            let y = grad.y.packed()?;
            times(g, y.mul(y.one_minus()?)?)
        },
        Unary::Tanh => |grad, g| times(g, grad.y.packed()?.sqr()?.one_minus()?),
        // 1 above zero, else y + 1.
        Unary::Elu => |grad, g| {
            let y = grad.y.packed()?;
            times(g, y.sub(y.relu()?)?.scale_bias(1.0, 1.0)?)
        },
        Unary::Sgn
        | Unary::Step
        | Unary::Xielu
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc => return None,
    })
}

fn times<'g>(g: Tensor<'g>, slope: Tensor<'g>) -> Result<Grads<'g>> {
    g.mul(slope).map(Grads::first)
}

pub(super) fn sqr<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let product = g.mul(grad.source(0)?.packed()?)?;
    product.scale(2.0).map(Grads::first)
}

pub(super) fn sqrt<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.div(grad.y.packed()?)?.scale(0.5).map(Grads::first)
}

pub(super) fn log<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.div(grad.source(0)?.packed()?).map(Grads::first)
}

pub(super) fn sin<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    times(g, grad.source(0)?.packed()?.cos()?)
}

pub(super) fn cos<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let product = g.mul(grad.source(0)?.packed()?.sin()?)?;
    product.neg().map(Grads::first)
}

pub(super) fn clamp<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let [lo, hi] = [0, 1].map(|index| grad.node.f32_param(index));
    times(g, grad.source(0)?.packed()?.unclamped(lo, hi)?)
}

pub(super) fn leaky_relu<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let slope = grad.node.f32_param(0);
    let step = grad.source(0)?.packed()?.step()?;
    times(g, step.scale_bias(1.0 - slope, slope)?)
}

/// x*sigmoid(k*x) has this slope: s*(1 + k*x*(1 - s)), where s = sigmoid(k*x).
pub(super) fn swish_slope(x: Tensor<'_>, k: f32) -> Result<Tensor<'_>> {
    let kx = if k == 1.0 { x } else { x.scale(k)? };
    let s = kx.sigmoid()?;
    s.mul(kx.mul(s.one_minus()?)?.scale_bias(1.0, 1.0)?)
}

/// x/2*(1 + t), t = tanh(u), u = c*x*(1 + a*x²): (1 + t)/2 + x/2*(1 - t²)*c*(1 + 3*a*x²).
pub(super) fn gelu_slope(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let a = 0.044715_f32;
    let c = (2.0 / PI).sqrt();
    // Beyond, the slope is 0 or 1, and du overflows.
    let x = x.clamp(-10.0, 10.0)?;
    let xx = x.sqr()?;
    let u = x.mul(xx.scale_bias(a * c, c)?)?;
    let t = u.tanh()?;
    let du = x.mul(xx.scale_bias(3.0 * a * c, c)?)?;
    let dt = du.mul(t.sqr()?.one_minus()?)?;
    t.add(dt)?.scale_bias(0.5, 0.5)
}

/// x*P(x), P the normal distribution's: P(x) + x*p(x). There is no op for P; it is y/x, and 1/2 where x is next to nothing.
pub(super) fn gelu_erf_slope(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let away = x.abs()?.scale_bias(1.0, -1e-6)?.step()?;
    let z = x.mul(away)?.add(away.one_minus()?)?;
    let p = z.gelu_erf()?.div(z)?.scale_bias(1.0, -0.5)?;
    let distribution = p.mul(away)?.scale_bias(1.0, 0.5)?;
    let bell = x.sqr()?.scale(-0.5)?.exp()?;
    let density = bell.scale(1.0 / (2.0 * PI).sqrt())?;
    distribution.add(x.mul(density)?)
}

/// min(1, max(0, (x + 3)/6)) rises by 1/6 in between.
fn ramp_slope(x: Tensor<'_>) -> Result<Tensor<'_>> {
    x.between(-3.0, 3.0)?.scale(1.0 / 6.0)
}

/// x times that ramp also has its value.
fn hardswish_slope(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let rise = ramp_slope(x)?;
    x.hardsigmoid()?.add(x.mul(rise)?)
}
