use super::super::super::cpu::testing::{layout, node, transposed};
use super::*;
use crate::dtype::DType::{BF16, F16, I32, NVFP4, Q4_K};
use crate::graph::node::{Glu, Unary};

/// Each names the operand, the limit and a way out.
#[test]
fn a_reason_names_operand_limit_and_way_out() {
    let (x, half, bf16) = (
        layout(F32, &[64, 4]),
        layout(F16, &[64, 4]),
        layout(BF16, &[64, 4]),
    );
    let of = |op, dst: Layout, src: &[Layout]| reason(&node(op, dst, src)).unwrap_or_default();
    for (text, parts) in [
        (
            of(Op::Scale, bf16, &[bf16]),
            ["a is bf16", "f32, f16", "cast a to f32"],
        ),
        (
            of(Op::Unary(Unary::Relu), x, &[transposed(x)]),
            ["rows of a", "256 bytes apart", "cont()"],
        ),
        (
            of(Op::Glu(Glu::Swiglu), bf16, &[bf16]),
            ["a is bf16", "f32, f16", "cast"],
        ),
        (
            of(Op::Add, x, &[x, half]),
            ["b is f16", "one type", "cast b to f32"],
        ),
        (
            of(Op::Concat, x, &[x, half]),
            ["b is f16", "one type", "cast b to f32"],
        ),
        (
            of(Op::Cpy, bf16, &[half]),
            ["a is f16", "not to bf16", "cast a to f32 first"],
        ),
        (
            of(
                Op::SetRows,
                layout(Q4_K, &[256, 4]),
                &[layout(F32, &[256, 4])],
            ),
            ["the result is q4_K", "q8_0", "Scheduler"],
        ),
        (
            of(Op::FlashAttnExt, x, &[layout(F32, &[36, 4]); 3]),
            ["query (a) is 36", "40", "Scheduler"],
        ),
        (
            of(Op::MulMat, x, &[layout(NVFP4, &[64, 4]), x]),
            ["a of nvfp4", "no kernel", "cast a"],
        ),
        (
            of(Op::MulMat, x, &[bf16, half]),
            ["a is bf16", "b is f16", "cast b to f32"],
        ),
        (
            of(Op::OutProd, x, &[layout(I32, &[64, 4]), x]),
            ["a is i32", "bf16", "Scheduler"],
        ),
        (
            of(Op::Im2col, x, &[x, half]),
            ["b is f16", "take f32", "cast b"],
        ),
        (
            of(Op::Sum, x, &[transposed(x)]),
            ["a is not contiguous", "a", "cont()"],
        ),
        (
            of(Op::RepeatBack, x, &[x]),
            ["no kernel", "the op", "Scheduler"],
        ),
        (
            of(Op::Custom, x, &[x]),
            ["closure", "CPU alone", "Scheduler"],
        ),
    ] {
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{text:?} lacks one of {parts:?}"
        );
    }
    assert_eq!(of(Op::Scale, x, &[x]), "");
}
