//! Positions; `supports_op` asks for what the kernels for images take.

use super::{Verdict, require};
use crate::graph::node::{Node, Op};

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::TimestepEmbedding, [a]) => {
            require(a.has_packed_rows(), "the kernel reads a packed row only")
        }
        _ => Ok(()),
    }
}
