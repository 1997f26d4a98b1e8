//! Products of matrices.

use crate::dtype::DType::F32;
use crate::error::Result;
use crate::graph::backward::grad::{Grad, Grads};
use crate::graph::{ExpertIds, RowIds, Staging, Tensor};

/// y = aᵀ · b, where each matrix of a is read for several of b.
pub(super) fn mul_mat<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let (a, b) = (grad.source(0)?, grad.source(1)?);
    Grads::each(grad, |place| match place {
        0 => of_shared_matrices(a, b, g),
        _ => a.out_prod(g.transpose()?),
    })
}

fn of_shared_matrices<'g>(a: Tensor<'g>, b: Tensor<'g>, g: Tensor<'g>) -> Result<Tensor<'g>> {
    let [_, _, a2, a3] = a.shape().ne();
    let [n, p, b2, b3] = b.shape().ne();
    // The matrices that share one of a follow each other: one product sums over their rows.
    let r2 = b2 / a2;
    let r3 = if a2 == 1 { b3 / a3 } else { 1 };
    let product = if r2 * r3 > 1 {
        let rows = |columns: usize| [columns, p * r2 * r3, a2, b3 / r3];
        let m = g.shape().ne()[0];
        b.packed()?
            .reshape(rows(n))?
            .out_prod(g.reshape(rows(m))?)?
    } else {
        // The first operand of a product must not be transposed, and strides of 0 look like that.
        let b = if b.layout().is_transposed() {
            b.packed()?
        } else {
            b
        };
        b.out_prod(g)?
    };
    if product.shape() == a.shape() {
        return Ok(product);
    }
    product.sum_runs(a.shape())
}

/// y = a · bᵀ: da = g · b, db = gᵀ · a.
pub(super) fn out_prod<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let (a, b) = (grad.source(0)?, grad.source(1)?);
    Grads::each(grad, |place| match place {
        0 => {
            let product = g.out_prod(b.transpose()?)?;
            if product.shape() == a.shape() {
                return Ok(product);
            }
            product.sum_runs(a.shape())
        }
        // Only the first operand of a product is broadcast, and it must not be transposed: the transpose of db.
        _ => {
            let transposed = a.transpose()?.cont()?;
            transposed.out_prod(g.transpose()?)?.transpose()?.cont()
        }
    })
}

/// y[:, u, t] = as[:, :, ids[u, t]]ᵀ · b[:, u % ne1, t].
pub(super) fn mul_mat_id<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let experts = grad.source(0)?.shape().ne()[2];
    let ids = grad.source(2)?;
    Grads::each(grad, |place| match place {
        0 => of_experts(grad.source(1)?, g, ids, experts),
        _ => {
            let weights = grad.source(0)?;
            // A float copy of all experts: blocks cannot be transposed, and products with halves round g to half.
            let floats = match weights.dtype() {
                F32 => weights,
                _ => weights.cast(F32)?,
            };
            let ids = ExpertIds {
                tensor: ids,
                experts,
            };
            let product = floats.transpose()?.cont()?.mul_mat_id(g, ids)?;
            let product = product.set_staging(Staging::Float)?;
            product.sum_copies(grad.source(1)?.shape())
        }
    })
}

/// For each expert, the outer product with its own rows of g among zeros: m*experts*n floats. The rows are written there, not
/// multiplied with 0 and 1: an infinity in a row of one expert is none of the others'.
fn of_experts<'g>(
    b: Tensor<'g>,
    g: Tensor<'g>,
    ids: Tensor<'g>,
    experts: usize,
) -> Result<Tensor<'g>> {
    let [used, tokens, ..] = ids.shape().ne();
    let n = used * tokens;
    let m = g.shape().ne()[0];
    let zeros = g.constant(0.0)?.repeat([m, experts, n])?;
    let one_each = RowIds {
        tensor: ids.packed()?.reshape([1, n])?,
        rows: experts,
        // Lists of one.
        distinct: true,
    };
    let rows = zeros.set_rows(g.reshape([m, 1, n])?, one_each)?;
    let [k, read, ..] = b.shape().ne();
    let mut b = b.packed()?;
    if read != used {
        b = b.repeat([k, used, tokens])?;
    }
    b.reshape([k, n])?.out_prod(rows.permute([0, 2, 1, 3])?)
}
