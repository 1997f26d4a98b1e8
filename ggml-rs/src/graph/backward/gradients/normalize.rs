//! Normalizations of rows.

use crate::error::Result;
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Grads};
use crate::graph::node::Op;

/// NORM and RMS_NORM.
pub(super) fn norm<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let (x, y) = (grad.source(0)?.packed()?, grad.y.packed()?);
    let rms = grad.node.op == Op::RmsNorm;
    of_rows(x, y, g, grad.node.f32_param(0), rms).map(Grads::first)
}

/// y = (x - mean(x))/s, s = sqrt(mean((x - mean(x))²) + eps): (g - mean(g) - y*mean(g*y))/s; rms: without the means of x and g.
fn of_rows<'g>(
    x: Tensor<'g>,
    y: Tensor<'g>,
    g: Tensor<'g>,
    eps: f32,
    rms: bool,
) -> Result<Tensor<'g>> {
    let x = if rms { x } else { x.sub(x.mean_rows()?)? };
    let s = x.sqr()?.mean_rows()?.scale_bias(1.0, eps)?.sqrt()?;
    let d = if rms { g } else { g.sub(g.mean_rows()?)? };
    let along = y.mul(g.mul(y)?.mean_rows()?)?;
    d.sub(along)?.div(s)
}

/// As NORM, where rows are groups of channels, of which there are whole ones only.
pub(super) fn group_norm<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let x = grad.source(0)?;
    let shape = x.shape();
    let [n0, n1, channels, batches] = shape.ne();
    let groups = grad.count(0);
    let rows = [n0 * n1 * (channels / groups), groups * batches];
    let d = of_rows(
        x.packed()?.reshape(rows)?,
        grad.y.packed()?.reshape(rows)?,
        g.reshape(rows)?,
        grad.node.f32_param(1),
        false,
    )?;
    d.reshape(shape).map(Grads::first)
}

/// y = x/max(|x|, eps): (g - y*dot(g, y))/|x|; below eps y is x/eps, and the term of the dot product goes away.
pub(super) fn l2_norm<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let eps = grad.node.f32_param(0);
    let y = grad.y.packed()?;
    let size = grad.source(0)?.packed()?.sqr()?.sum_rows()?.sqrt()?;
    let dot = g.dot_rows(y)?.mul(size.scale_bias(1.0, -eps)?.step()?)?;
    let across = g.sub(y.mul(dot)?)?;
    across
        .div(size.clamp(eps, f32::INFINITY)?)
        .map(Grads::first)
}
