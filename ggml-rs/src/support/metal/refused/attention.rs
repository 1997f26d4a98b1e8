//! Attention, its indexers, and recurrences. Operands are named as errors show them: q, k, v and the mask are a, b, c and d.

use super::{SCHEDULER, first, float_rows, result, size, spread, typed};
use crate::dtype::DType::{self, BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// Types of keys and values.
const KEYS: [DType; 8] = [F16, F32, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1];

pub(super) fn reason(node: &Node) -> Option<String> {
    match (node.op, node.src.as_slice()) {
        (Op::FlashAttnExt, [q, k, v, ..]) => flash(q, k, v),
        (Op::LightningIndexer, [q, k, weights, mask]) => first([
            size(q.ne[0] == 128, "the length of a query (a)", q.ne[0], "128"),
            typed("a", q, &[F32]),
            typed("c", weights, &[F32]),
            typed("d", mask, &[F16]),
            result(&node.dst, &[F32]),
            spread("a", q),
            spread("b", k),
            spread("c", weights),
            spread("d", mask),
            typed("b", k, &KEYS),
        ]),
        (Op::Dsv4HcComb, [a, b, c]) => first([
            float_rows("a", a),
            float_rows("b", b),
            float_rows("c", c),
            size(a.ne[0] == 24, "ne[0] of a", a.ne[0], "24"),
            size(b.ne[0] >= 3, "ne[0] of b", b.ne[0], "3 and more"),
            size(c.ne[0] == 24, "ne[0] of c", c.ne[0], "24"),
        ]),
        (Op::Dsv4HcPre, [a, b, ..]) => first([float_rows("a", a), float_rows("b", b)]),
        (Op::Dsv4HcPost, [a, b, c, rest @ ..]) => first([
            float_rows("a", a),
            float_rows("b", b),
            float_rows("c", c),
            size(b.ne[1] == 4, "ne[1] of b", b.ne[1], "4"),
            size(c.ne[0] == 4, "ne[0] of c", c.ne[0], "4"),
            rest.first().and_then(mixed),
        ]),
        (Op::GatedDeltaNet, [_, _, v, ..]) => size(
            v.ne[0].is_multiple_of(32),
            "the length of a value (c)",
            v.ne[0],
            "multiples of 32",
        ),
        (Op::SolveTri, [a, ..]) => typed("a", a, &[F32]),
        _ => None,
    }
}

fn mixed(d: &Layout) -> Option<String> {
    first([
        float_rows("d", d),
        size(d.ne[0] == 4, "ne[0] of d", d.ne[0], "4"),
        size(d.ne[1] == 4, "ne[1] of d", d.ne[1], "4"),
    ])
}

fn flash(q: &Layout, k: &Layout, v: &Layout) -> Option<String> {
    const HEADS: [usize; 14] = [
        32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576,
    ];
    let (keys, values) = (k.ne[0], v.ne[0]);
    first([
        size(
            HEADS.contains(&q.ne[0]),
            "the length of a query (a)",
            q.ne[0],
            &HEADS.map(|n| n.to_string()).join(", "),
        ),
        (keys < values || (keys == 72 && values != 72)).then(|| {
            format!(
                "keys (b) have {keys} elements and values (c) {values}, for which there is no kernel: {SCHEDULER}"
            )
        }),
        (k.dtype != v.dtype).then(|| {
            format!(
                "keys (b) are {} and values (c) {}, and kernels take one type: cast one of them",
                k.dtype, v.dtype
            )
        }),
        typed("b", k, &KEYS),
    ])
}
