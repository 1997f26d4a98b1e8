//! Reductions, norms, and what moves elements.

use super::{SCHEDULER, first, float_rows, loose, result, spread, typed};
use crate::dtype::DType::{
    self, BF16, F16, F32, I8, I16, I32, I64, IQ4_NL, NVFP4, Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1,
    Q8_0, TQ1_0, TQ2_0,
};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// The types whose elements or blocks are joined.
const JOINED: [DType; 12] = [
    F32, F16, BF16, I8, I16, I32, I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
];
/// What rows of F32 are written as.
const ROWS: [DType; 10] = [F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, TQ2_0];
/// What F32 is copied to.
const COPIES: [DType; 13] = [
    F32, F16, BF16, Q8_0, Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, TQ2_0, I32,
];

pub(super) fn reason(node: &Node) -> Option<String> {
    match (node.op, node.src.as_slice()) {
        (Op::Sum, [a]) => first([typed("a", a, &[F32]), loose("a", a)]),
        (Op::SumRows | Op::Mean, [a]) => float_rows("a", a),
        (Op::CountEqual, [a, b]) => first([typed("a", a, &[I32]), typed("b", b, &[I32])]),
        (Op::Roll, [a]) => loose("a", a),
        (Op::Pad | Op::PadReflect1d | Op::TimestepEmbedding | Op::Upscale, [a]) => {
            typed("a", a, &[F32])
        }
        (Op::Concat, [a, b]) => concat(node, a, b),
        (Op::GetRows, [a, ..]) => matches!(a.dtype, NVFP4 | TQ1_0)
            .then(|| format!("there is no kernel for a of {}: {SCHEDULER}", a.dtype)),
        (Op::SetRows, [b, ..]) => set_rows(b, &node.dst),
        (Op::Set | Op::Cpy | Op::Dup | Op::Cont, [a, ..]) => copied(a, &node.dst),
        (_, [a, ..]) => spread("a", a),
        _ => None,
    }
}

fn concat(node: &Node, a: &Layout, b: &Layout) -> Option<String> {
    let one = a.dtype == b.dtype && a.dtype == node.dst.dtype;
    first([
        (!one).then(|| {
            format!(
                "a is {} and b is {}, and kernels join one type: cast b to {0}",
                a.dtype, b.dtype
            )
        }),
        typed("a", a, &JOINED),
    ])
}

/// ggml's operand 0 is what is written, which errors call a.
fn set_rows(written: &Layout, to: &Layout) -> Option<String> {
    match written.dtype {
        F16 => (to.dtype != F16).then(|| {
            format!(
                "rows of f16 (a) are written to f16 alone, and these are written to {}: cast a to f32",
                to.dtype
            )
        }),
        F32 => result(to, &ROWS),
        _ => typed("a", written, &[F32, F16]),
    }
}

fn copied(from: &Layout, to: &Layout) -> Option<String> {
    let takes: &[DType] = match from.dtype {
        F32 => &COPIES,
        F16 => &[F32, F16],
        BF16 => &[F32, BF16],
        I32 => &[F32, I32],
        blocks if blocks.dequantizes() => &[F32, F16],
        other => return Some(format!("there is no kernel for a of {other}: {SCHEDULER}")),
    };
    (!takes.contains(&to.dtype)).then(|| {
        let names: Vec<_> = takes.iter().map(|dtype| dtype.name()).collect();
        format!(
            "a is {}, which kernels copy to {}, and not to {}: {}",
            from.dtype,
            names.join(", "),
            to.dtype,
            by_way_of_f32(from, to)
        )
    })
}

/// Two copies reach what one does not.
fn by_way_of_f32(from: &Layout, to: &Layout) -> String {
    let two = takes_f32_from(from.dtype) && COPIES.contains(&to.dtype);
    match two {
        true => format!("cast a to f32 first, or {SCHEDULER}"),
        false => SCHEDULER.to_owned(),
    }
}

fn takes_f32_from(dtype: DType) -> bool {
    matches!(dtype, F16 | BF16 | I32) || dtype.dequantizes()
}
