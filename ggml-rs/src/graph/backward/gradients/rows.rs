//! Rows chosen by ids.

use crate::dtype::DType::F32;
use crate::error::Result;
use crate::graph::backward::grad::{Grad, Grads};
use crate::graph::{RowIds, Tensor};

/// Ids of a node, which were checked when it was made.
fn ids(tensor: Tensor<'_>, rows: usize) -> RowIds<'_> {
    RowIds {
        tensor,
        rows,
        // Those of SET_ROWS are, and no other op asks.
        distinct: true,
    }
}

pub(super) fn add_id<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    Grads::each(grad, |place| match place {
        0 => Ok(g),
        _ => {
            let [n, used, tokens, _] = g.shape().ne();
            let rows = grad.source(1)?.shape().ne()[1];
            scatter(g.reshape([n, used * tokens])?, grad.source(2)?, rows)
        }
    })
}

pub(super) fn get_rows<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let (x, chosen) = (grad.source(0)?, grad.source(1)?);
    let [_, rows, matrices, batches] = x.shape().ne();
    // One matrix of many rows, an embedding: ggml's op, which needs no memory of ids times rows.
    let gradient = if matrices * batches == 1 {
        g.get_rows_back(ids(chosen.packed()?, rows), x)
    } else {
        scatter(g, chosen, rows)
    };
    gradient.map(Grads::first)
}

/// y = a copy of source 2 in which rows were written.
pub(super) fn set_rows<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let (written, mut chosen) = (grad.source(0)?, grad.source(1)?);
    let [count, lists, more, _] = chosen.shape().ne();
    let [_, _, n2, n3] = written.shape().ne();
    if [lists, more] != [n2, n3] {
        chosen = chosen.packed()?.repeat([count, n2, n3])?;
    }
    let chosen = ids(chosen, g.shape().ne()[1]);
    Grads::each(grad, |place| match place {
        0 => g.get_rows(chosen),
        // What was overwritten gives nothing.
        _ => g.dup()?.set_rows(g.zeros(written.shape())?, chosen),
    })
}

/// Adds the rows of g, [k, N, batches], up by their ids: [k, rows, batches]. A product with zeros and ones: an infinity in a row of g
/// is NaN in the rows of other ids. Selecting instead takes k*N*rows*batches floats, and there is no op that adds rows up on Metal.
fn scatter<'g>(g: Tensor<'g>, ids: Tensor<'g>, rows: usize) -> Result<Tensor<'g>> {
    let [k, n, n2, n3] = g.shape().ne();
    let batches = n2 * n3;
    let hot = one_hot(ids, [n, rows, batches])?.permute([3, 1, 0, 2])?; // [rows, N, batches, 1]
    let sum = g.reshape([k, n, batches])?.out_prod(hot)?;
    sum.reshape([k, rows, n2, n3])
}

/// 1 where id n is row e, else 0: [1, N, E, batches]. There are N*batches ids of I32.
fn one_hot(ids: Tensor<'_>, [n, rows, batches]: [usize; 3]) -> Result<Tensor<'_>> {
    let chosen = ids.packed()?.cast(F32)?;
    let chosen = chosen.reshape([1, n, 1, batches])?;
    let chosen = chosen.repeat([1, n, rows, batches])?;
    let row = ids.builder().arange(0.0, rows as f32, 1.0)?;
    let row = row.reshape([1, 1, rows])?;
    chosen.sub(row)?.sgn()?.sqr()?.one_minus()
}
