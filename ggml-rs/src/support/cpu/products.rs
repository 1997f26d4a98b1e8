//! Products of matrices.

use super::{Verdict, dtype, is_float, packed_rows, require};
use crate::dtype::DType::{BF16, F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::OutProd, [a, b]) => out_prod(a, b),
        // The hint sends rows of b through a transform that reads halves as well, and never reads a.
        (Op::MulMat, [a, b]) if node.params[HINT] == IS_HADAMARD => {
            dtype(a.dtype == F32, "a", a)?;
            dtype(matches!(b.dtype, F32 | F16), "b", b)?;
            packed_rows("b", b)
        }
        // Widened for MUL_MAT alone.
        (Op::MulMat, [a, b]) if a.dtype == F32 && b.dtype == BF16 => {
            packed_rows("a", a)?;
            packed_rows("b", b)
        }
        (Op::MulMat, [a, b]) | (Op::MulMatId, [a, b, _]) => {
            mul_mat(a, b).and_then(|()| keeps(a, node.float_operands))
        }
        _ => super::operands(),
    }
}

/// The place of the hint among MUL_MAT's parameters, and what says that `a` is a Hadamard matrix.
const HINT: usize = 1;
const IS_HADAMARD: i32 = ggml_sys::GGML_HINT_SRC0_IS_HADAMARD;

fn out_prod(a: &Layout, b: &Layout) -> Verdict {
    dtype(is_float(a.dtype) || a.dtype.dequantizes(), "a", a)?;
    dtype(is_float(b.dtype), "b", b)?;
    require(
        is_float(a.dtype) || a.has_packed_rows(),
        "the rows of a are not packed",
    )
}

fn mul_mat(a: &Layout, b: &Layout) -> Verdict {
    dtype(is_float(a.dtype) || a.dtype.dequantizes(), "a", a)?;
    let same = b.dtype == a.dtype && matches!(a.dtype, F16 | BF16);
    dtype(b.dtype == F32 || same, "b", b)?;
    packed_rows("a", a)?;
    packed_rows("b", b)
}

/// Kernels multiply F32 with F32 in F32, and every other type with `b` rounded to a type that goes with it; F16 with F16 is
/// added up in F16 on some ARM machines.
fn keeps(a: &Layout, float: bool) -> Verdict {
    require(
        !float || a.dtype == F32,
        format!(
            "float operands are asked for, and the kernels compute in less where a is {}",
            a.dtype
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::{self, I32};

    fn out_prod_node(a: Layout, b: Layout) -> Node {
        node(
            Op::OutProd,
            layout(F32, &[a.ne[0], b.ne[0], b.ne[2], b.ne[3]]),
            &[a, b],
        )
    }

    #[test]
    fn out_prod_takes_every_type_that_becomes_float() {
        for a in DType::ALL {
            for b in [F32, F16, BF16] {
                let verdict = check(&out_prod_node(
                    layout(a, &[256, 4]),
                    layout(b, &[8, 4, 2, 3]),
                ));
                let takes = matches!(a, F32 | F16 | BF16) || a.dequantizes();
                assert_eq!(verdict.is_ok(), takes, "{a} and {b}: {verdict:?}");
            }
        }
        check(&out_prod_node(
            layout(F32, &[8, 4]),
            transposed(layout(F32, &[4, 8])),
        ))
        .unwrap();
        check(&out_prod_node(
            transposed(layout(BF16, &[4, 8])),
            layout(F32, &[8, 4]),
        ))
        .unwrap();
    }

    #[test]
    fn out_prod_refuses_with_a_reason() {
        let b = layout(F32, &[8, 4]);
        for (a, b, why) in [
            (
                layout(F32, &[8, 4]),
                layout(DType::Q8_0, &[32, 4]),
                "b of type q8_0",
            ),
            (layout(I32, &[8, 4]), b, "a of type i32"),
            (layout(DType::Q8_1, &[32, 4]), b, "a of type q8_1"),
            (
                layout(F32, &[1 << 16, 4]),
                layout(F32, &[1 << 16, 4]),
                "2^31",
            ),
        ] {
            let reason = check(&out_prod_node(a, b)).unwrap_err();
            assert!(reason.contains(why), "{reason}");
        }
    }

    #[test]
    fn mul_mat_wants_packed_rows_of_both() {
        let product = |a: Layout, b: Layout| {
            check(&node(Op::MulMat, layout(F32, &[a.ne[1], b.ne[1]]), &[a, b]))
        };
        product(layout(DType::Q4_K, &[256, 8]), layout(F32, &[256, 3])).unwrap();
        product(layout(BF16, &[8, 8]), layout(BF16, &[8, 3])).unwrap();
        assert!(product(layout(F32, &[8, 8]), transposed(layout(F32, &[3, 8]))).is_err());
        assert!(product(layout(F32, &[8, 8]), layout(F16, &[8, 3])).is_err());
    }

    #[test]
    fn activations_of_bf16_are_widened_for_mul_mat_alone() {
        let (a, b) = (layout(F32, &[8, 8]), layout(BF16, &[8, 3]));
        let dst = layout(F32, &[8, 3]);
        check(&node(Op::MulMat, dst, &[a, b])).unwrap();
        let ids = layout(I32, &[1, 3]);
        assert!(check(&node(Op::MulMatId, dst, &[a, b, ids])).is_err());
        assert!(check(&node(Op::MulMat, dst, &[layout(F16, &[8, 8]), b])).is_err());
    }

    #[test]
    fn a_transform_reads_halves() {
        let (a, b) = (layout(F32, &[8, 8]), layout(F16, &[8, 3]));
        let plain = node(Op::MulMat, layout(F32, &[8, 3]), &[a, b]);
        assert!(check(&plain).is_err());
        let mut hinted = plain;
        hinted.params[HINT] = IS_HADAMARD;
        check(&hinted).unwrap();
    }

    #[test]
    fn float_operands_are_refused_where_kernels_compute_in_less() {
        let product = |a: DType, b: DType, float_operands: bool| {
            let (a, b) = (layout(a, &[256, 8]), layout(b, &[256, 3]));
            check(&Node {
                float_operands,
                ..node(Op::MulMat, layout(F32, &[8, 3]), &[a, b])
            })
        };
        product(F32, F32, true).unwrap();
        for (a, b) in [(F16, F32), (BF16, F32), (DType::Q4_K, F32), (F16, F16)] {
            product(a, b, false).unwrap();
            assert!(product(a, b, true).unwrap_err().contains("in less"));
        }
    }
}
