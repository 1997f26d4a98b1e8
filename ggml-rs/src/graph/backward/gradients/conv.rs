//! Images.

use crate::error::Result;
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Grads};

/// The kernel gives its shape alone. It may be trained all the same, through the product that follows.
pub(super) fn im2col<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let (kernel, image) = (grad.source(0)?, grad.source(1)?);
    if !grad.needs(1) {
        return Ok(Grads::default());
    }
    let gradient = g.im2col_back_like(kernel, image.shape(), &grad.node.params)?;
    Ok(Grads::default().with(1, gradient))
}

pub(super) fn pool_2d<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.pool_2d_back_like(grad.source(0)?.packed()?, &grad.node.params)
        .map(Grads::first)
}
