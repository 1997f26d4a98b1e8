//! Convolutions and pooling.

use super::{first, loose, result, typed};
use crate::dtype::DType::{BF16, F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn reason(node: &Node) -> Option<String> {
    match (node.op, node.src.as_slice()) {
        (Op::ConvTranspose2d, [a, b]) => first([
            loose("a", a),
            loose("b", b),
            kernel(a, b),
            result(&node.dst, &[F32]),
        ]),
        (Op::Conv3d, [a, b]) => first([loose("a", a), loose("b", b), kernel(a, b)]),
        (Op::Conv2d, [a, b]) => first([loose("a", a), kernel(a, b), result(&node.dst, &[F32])]),
        (Op::Conv2dDw, [a, b]) => first([kernel(a, b), result(&node.dst, &[F32])]),
        (Op::Col2im1d, [a]) => first([
            typed("a", a, &[F32, F16, BF16]),
            result(&node.dst, &[a.dtype]),
            loose("a", a),
        ]),
        (Op::Im2col, [_, b]) => first([
            loose("b", b),
            typed("b", b, &[F32]),
            result(&node.dst, &[F16, F32]),
        ]),
        (Op::Pool1d, [a]) => first([loose("a", a), typed("a", a, &[F32])]),
        (Op::Pool2d, [a]) => typed("a", a, &[F32]),
        _ => None,
    }
}

/// The kernel, and what it goes over.
fn kernel(a: &Layout, b: &Layout) -> Option<String> {
    first([typed("a", a, &[F32, F16]), typed("b", b, &[F32])])
}
