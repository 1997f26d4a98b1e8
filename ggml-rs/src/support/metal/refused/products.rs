//! Products of matrices.

use ggml_sys as sys;

use super::{SCHEDULER, first, loose, result, typed};
use crate::dtype::DType::{BF16, F16, F32, NVFP4, TQ1_0};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn reason(node: &Node, src: &[Layout]) -> Option<String> {
    match (node.op, src) {
        (Op::OutProd, [a, b]) => out_prod(node, a, b),
        (_, [a, b, ..]) => mul_mat(node, a, b),
        _ => None,
    }
}

/// F16 for `b` has fewer kernels than F32: those that stage halves, in batches, and the mat-vec kernel of F16 weights.
fn mul_mat(node: &Node, a: &Layout, b: &Layout) -> Option<String> {
    let halves = b.dtype == F16;
    let widen = "cast b to f32";
    first([
        matches!(a.dtype, NVFP4 | TQ1_0).then(|| {
            format!(
                "there is no kernel for a of {}: cast a to f32, or {SCHEDULER}",
                a.dtype
            )
        }),
        (halves && node.float_operands).then(|| {
            format!(
                "float weights are asked for (set_staging, or set_src_precision above f16), and with b of f16 there are kernels \
                 that hold them as f16 alone: {widen}"
            )
        }),
        (halves && a.dtype == BF16).then(|| {
            format!("a is bf16 and b is f16, for which there is no kernel: {widen}")
        }),
        (halves && node.op == Op::MulMat && node.params[4] != sys::GGML_MUL_MAT_ROUTE_AUTO).then(|| {
            format!(
                "Route::MatVec is asked for, whose kernels take b of f16 beside a of f16 alone, and a is {}: {widen}",
                a.dtype
            )
        }),
        halves.then(|| {
            format!(
                "b of f16 runs in batches alone (rows of 64 elements and more; 9 rows of b and more, or 32 tokens) where a is {}: {widen}",
                a.dtype
            )
        }),
    ])
}

fn out_prod(node: &Node, a: &Layout, b: &Layout) -> Option<String> {
    const ROUTE: usize = 4;
    let half = node.params[2..4].contains(&sys::GGML_PREC_F16);
    let direct = node.params[ROUTE] != 0;
    let blocks = a.dtype.dequantizes();
    first([
        (!blocks).then(|| typed("a", a, &[F32, F16, BF16])).flatten(),
        (blocks && !a.has_packed_rows()).then(|| {
            "the rows of a are not packed: call cont() on it first".to_owned()
        }),
        typed("b", b, &[F32, F16, BF16]),
        result(&node.dst, &[F32]),
        loose("the result", &node.dst),
        (half && direct).then(|| {
            "half staging is asked for, and Route::Direct stages floats alone: leave one of them out"
                .to_owned()
        }),
        Some(format!(
            "the result of {} by {} is too large for the scratch and the counts of the kernels, or the GPU cannot create the product's \
             kernel: divide it, or {SCHEDULER}",
            node.dst.ne[0], node.dst.ne[1]
        )),
    ])
}
