//! Softmax, its loss, and rotary positions.

use crate::error::Result;
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Grads};

/// y*(g - dot(y, g))*scale, with a mask and slopes as without. A sink's share of the sum is 1 - sum(y): minus that times dot(y, g).
pub(super) fn soft_max<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let y = grad.y.packed()?;
    let dot = y.dot_rows(g)?;
    Grads::each(grad, |place| match place {
        0 => y.mul(g.sub(dot)?)?.scale(grad.node.f32_param(0)),
        _ => {
            let share = dot.mul(y.sum_rows()?.one_minus()?)?.neg()?;
            let [_, tokens, heads, batches] = y.shape().ne();
            let sum = share.sum_middle([1, tokens, heads * batches])?;
            let sum = sum.sum_middle([heads, batches, 1])?;
            sum.reshape(grad.source(2)?.shape())
        }
    })
}

/// y = -sum(labels*log(softmax(x)))/rows, whatever the labels of a row add up to: (softmax(x)*sum(labels) - labels)*g/rows.
pub(super) fn cross_entropy_loss<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let labels = grad.source(1)?.packed()?;
    let p = grad.source(0)?.packed()?.soft_max()?;
    let d = p.mul(labels.sum_rows()?)?.sub(labels)?;
    let rows: usize = labels.shape().ne()[1..].iter().product();
    d.mul(g.scale(1.0 / rows as f32)?).map(Grads::first)
}

/// The opposite turn.
pub(super) fn rope<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.rope_back_like(grad.source(1)?, grad.sources[2], &grad.node.params)
        .map(Grads::first)
}
