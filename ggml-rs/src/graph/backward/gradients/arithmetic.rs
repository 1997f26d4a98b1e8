//! Arithmetic and sums.

use crate::error::Result;
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Grads};

pub(super) fn add<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    with_repeated(grad, |_| Ok(g))
}

pub(super) fn sub<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    with_repeated(grad, |place| match place {
        0 => Ok(g),
        _ => g.neg(),
    })
}

pub(super) fn mul<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    with_repeated(grad, |place| g.mul(grad.source(1 - place)?.packed()?))
}

/// y = a/b: g/b, and -g*y/b.
pub(super) fn div<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    with_repeated(grad, |place| {
        let b = grad.source(1)?;
        match place {
            0 => g.div(b.packed()?),
            _ => g.mul(grad.y.packed()?.div(b.packed()?)?)?.neg(),
        }
    })
}

/// Of two sources, where the second is repeated to the shape of the first.
fn with_repeated<'g>(
    grad: &Grad<'g>,
    gradient: impl Fn(usize) -> Result<Tensor<'g>>,
) -> Result<Grads<'g>> {
    Grads::each(grad, |place| match place {
        0 => gradient(0),
        _ => gradient(1)?.sum_copies(grad.source(1)?.shape()),
    })
}

pub(super) fn scale<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.scale(grad.node.f32_param(0)).map(Grads::first)
}

/// Of all elements, or of rows.
pub(super) fn sum<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.repeat(grad.source(0)?.shape()).map(Grads::first)
}

/// Of rows.
pub(super) fn mean<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let shape = grad.source(0)?.shape();
    let share = g.scale(1.0 / shape.ne()[0] as f32)?;
    share.repeat(shape).map(Grads::first)
}
