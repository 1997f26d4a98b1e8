//! Arithmetic and functions, element by element.

use super::{first, loose, result, spread, typed};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn reason(node: &Node) -> Option<String> {
    match (node.op, node.src.as_slice()) {
        (Op::Add | Op::Sub | Op::Mul | Op::Div | Op::AddId, [a, b, ..]) => first([
            spread("a", a),
            spread("b", b),
            typed("a", a, &[F32, F16]),
            unlike(a, b),
        ]),
        (Op::Acc, [a, b]) => first([spread("a", a), spread("b", b), typed("a", a, &[F32])]),
        (Op::SiluBack, [a, b]) => first([
            typed("a", a, &[F32]),
            typed("b", b, &[F32]),
            result(&node.dst, &[F32]),
            loose("a", a),
            loose("b", b),
        ]),
        (Op::Glu(_), [a, ..]) => first([
            typed("a", a, &[F32, F16]),
            spread("a", a),
            (!a.is_contiguous_1()).then(|| {
                "the rows of a are not at one distance: call cont() on it first".to_owned()
            }),
        ]),
        (Op::LeakyRelu, [a]) => typed("a", a, &[F32, F16]),
        (_, [a, ..]) => first([spread("a", a), typed("a", a, &[F32, F16])]),
        _ => None,
    }
}

fn unlike(a: &Layout, b: &Layout) -> Option<String> {
    (a.dtype != b.dtype).then(|| {
        format!(
            "a is {} and b is {}, and kernels take one type: cast b to {0}",
            a.dtype, b.dtype
        )
    })
}
