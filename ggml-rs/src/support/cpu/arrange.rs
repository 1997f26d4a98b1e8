//! Repeating, joining, padding, masking.

use super::{Verdict, packed};
use crate::dtype::DType::{BF16, F16, F32, I16, I32};
use crate::graph::node::{Node, Op};

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Repeat, [a]) => packed(a, &[F32, F16, BF16, I32, I16]),
        _ => super::operands(),
    }
}
