//! Attention in one op, and its indexers.

use super::{Verdict, dtype, is_float, packed_rows, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::FlashAttnExt, [q, k, v, ..]) => flash(node, q, k, v),
        (Op::LightningIndexer, [q, k, weights, mask]) => indexer(q, k, weights, mask),
        (Op::Dsv4HcComb | Op::Dsv4HcPre | Op::Dsv4HcPost, src) => hyper(src),
        // ggml makes the node, and aborts before it computes.
        (Op::FlashAttnBack, _) => Err("the op is not finished".to_owned()),
        _ => super::operands(),
    }
}

/// Queries are read as F32 whatever they are, sinks as an array, masks up to the number of keys and queries. The promise of floats is
/// kept for every type: keys become F32 for it (patch 0047).
fn flash(node: &Node, q: &Layout, k: &Layout, v: &Layout) -> Verdict {
    dtype(q.dtype == F32, "q", q)?;
    for (role, layout) in [("k", k), ("v", v)] {
        dtype(
            is_float(layout.dtype) || layout.dtype.dequantizes(),
            role,
            layout,
        )?;
        packed_rows(role, layout)?;
    }
    packed_rows("q", q)?;
    if let Some(mask) = node.slot(3) {
        dtype(mask.dtype == F16, "the mask", mask)?;
        packed_rows("the mask", mask)?;
        require(
            mask.ne[0] >= k.ne[1] && mask.ne[1] >= q.ne[1],
            "the mask is smaller than keys and queries",
        )?;
    }
    if let Some(sinks) = node.slot(4) {
        dtype(sinks.dtype == F32, "sinks", sinks)?;
        packed_rows("sinks", sinks)?;
    }
    Ok(())
}

fn indexer(q: &Layout, k: &Layout, weights: &Layout, mask: &Layout) -> Verdict {
    dtype(q.dtype == F32, "q", q)?;
    dtype(is_float(k.dtype) || k.dtype.dequantizes(), "k", k)?;
    dtype(weights.dtype == F32, "weights", weights)?;
    dtype(mask.dtype == F16, "the mask", mask)?;
    for (role, layout) in [("q", q), ("k", k), ("weights", weights), ("the mask", mask)] {
        packed_rows(role, layout)?;
    }
    Ok(())
}

/// Kernels go by strides.
fn hyper(src: &[Layout]) -> Verdict {
    src.iter()
        .try_for_each(|layout| dtype(layout.dtype == F32, "an operand", layout))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::{BF16, I32, Q4_K};

    #[test]
    fn attention_reads_queries_as_floats_and_masks_as_far_as_it_goes() {
        let dst = layout(F32, &[256, 1, 5]);
        let of = |src: &[Layout]| check(&node(Op::FlashAttnExt, dst, src));
        let (q, k) = (layout(F32, &[256, 5]), layout(Q4_K, &[256, 9]));
        of(&[q, k, k]).unwrap();
        of(&[q, k, k, layout(F16, &[9, 5]), layout(F32, &[1])]).unwrap();
        assert!(of(&[layout(F16, &[256, 5]), k, k]).is_err());
        assert!(of(&[q, layout(I32, &[256, 9]), k]).is_err());
        assert!(of(&[transposed(layout(F32, &[5, 256])), k, k]).is_err());
        assert!(of(&[q, k, k, layout(F16, &[8, 5])]).is_err());
        assert!(of(&[q, k, k, layout(F16, &[9, 4])]).is_err());
    }

    #[test]
    fn floats_are_promised_for_every_type() {
        let (q, dst) = (layout(F32, &[256, 5]), layout(F32, &[256, 1, 5]));
        for dtype in [F32, F16, BF16, Q4_K] {
            let kv = layout(dtype, &[256, 9]);
            let mut node = node(Op::FlashAttnExt, dst, &[q, kv, kv]);
            node.params[3] = ggml_sys::GGML_PREC_F32;
            check(&node).unwrap();
        }
    }
}
