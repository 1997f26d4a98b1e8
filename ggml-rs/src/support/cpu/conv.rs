//! Convolutions and pooling.

use super::{Verdict, dtype, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Pool1d, [a]) => pool_1d(a),
        _ => super::operands(),
    }
}

/// The kernel steps from row to row by `nb[1]`, whatever the higher dimensions' strides are.
fn pool_1d(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    require(
        a.is_packed(),
        "the strides of a are not those of a new tensor",
    )
}
