//! Views, copies, and parts of tensors.

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Grads, Part};
use crate::graph::ops::window::Window;

/// RESHAPE, VIEW, PERMUTE and TRANSPOSE, which the tables know as one.
pub(super) fn view<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    match grad.y.raw_op() {
        sys::GGML_OP_PERMUTE => {
            // Dimension `axis` of the source is dimension `params[axis]` of the result.
            let mut back = [0; 4];
            (0..4).for_each(|axis| back[grad.count(axis)] = axis);
            g.permute(back).map(Grads::first)
        }
        sys::GGML_OP_TRANSPOSE => g.transpose().map(Grads::first),
        sys::GGML_OP_VIEW => window(grad, g),
        _ => copy(grad, g),
    }
}

/// The gradient of a view lies in that of what it is a view of as the view lies in it, which may be of another type.
fn window<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let from = grad.source(0)?.dtype().block_bytes();
    let floats = |bytes: usize| bytes / from * size_of::<f32>();
    let [_, nb1, nb2, nb3] = grad.y.strides();
    let window = Window {
        nb: [nb1, nb2, nb3].map(floats),
        offset: floats(grad.node.view_offset()),
    };
    let mut grads = Grads::default();
    grads.0[0] = Some(Part::Window(g, window));
    Ok(grads)
}

/// The same elements in another shape or type.
pub(super) fn copy<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.reshape(grad.source(0)?.shape()).map(Grads::first)
}

pub(super) fn repeat<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.sum_copies(grad.source(0)?.shape()).map(Grads::first)
}

pub(super) fn repeat_back<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.repeat(grad.source(0)?.shape()).map(Grads::first)
}

pub(super) fn concat<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let axis = grad.count(0);
    Grads::each(grad, |place| {
        let offset = match place {
            0 => 0,
            _ => grad.source(0)?.shape().ne()[axis] * g.strides()[axis],
        };
        g.part(grad.source(place)?.shape(), offset)
    })
}

pub(super) fn pad<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let before = |dim: usize| grad.count(2 * dim) * g.strides()[dim];
    let offset = (0..4).map(before).sum();
    g.part(grad.source(0)?.shape(), offset).map(Grads::first)
}

pub(super) fn diag_mask<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    g.diag_mask_zero(grad.count(0)).map(Grads::first)
}

/// y = a, with b added to a window of it.
pub(super) fn acc<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    Grads::each(grad, |place| match place {
        0 => Ok(g),
        _ => of_window(grad, g),
    })
}

/// y = a, with b in a window of it: what was overwritten gives nothing to y.
pub(super) fn set<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    Grads::each(grad, |place| match place {
        0 => {
            let Window { nb, offset } = stored(grad)?;
            g.set(g.zeros(grad.source(1)?.shape())?, nb, offset)
        }
        _ => of_window(grad, g),
    })
}

/// What of g lies in the window of an ACC or a SET.
fn of_window<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Tensor<'g>> {
    let Window { nb, offset } = stored(grad)?;
    g.view(grad.source(1)?.shape(), nb, offset)?.cont()
}

fn stored(grad: &Grad<'_>) -> Result<Window> {
    Window::of(&grad.node.params).map_err(|message| Error::Internal {
        step: "a gradient",
        message,
    })
}
