//! Products of matrices.

use ggml_sys as sys;

use super::{Verdict, dtype, is_float, packed_rows, require};
use crate::dtype::DType::{self, BF16, F16, F32};
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
            mul_mat(a, b)?;
            keeps_float(a, node.float_operands)?;
            keeps_source(node, a, b)
        }
        _ => super::operands(),
    }
}

/// The place of the hint among MUL_MAT's parameters, and what says that `a` is a Hadamard matrix.
const HINT: usize = 1;
const IS_HADAMARD: i32 = sys::GGML_HINT_SRC0_IS_HADAMARD;

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
fn keeps_float(a: &Layout, float: bool) -> Verdict {
    require(
        !float || a.dtype == F32,
        format!(
            "float operands are asked for (set_staging, or set_src_precision above f16), and the kernels compute in less where a \
             is {}: cast a to F32, or run it on a device that stages floats, such as Metal",
            a.dtype
        ),
    )
}

/// The place of the precision of `b` among the parameters of both products.
const SOURCE_B: usize = 3;

/// What becomes of an F32 `b` on its way to the weights that it is multiplied with.
#[derive(Clone, Copy, PartialEq)]
enum Rounded {
    Nothing,
    Bf16,
    Half,
    /// 8-bit blocks with a scale of F32.
    LargeBlocks,
    /// 8-bit blocks with a scale of F16.
    SmallBlocks,
}

impl Rounded {
    /// As `vec_dot_type` in ggml-cpu.c.
    fn beside(a: DType) -> Self {
        use DType::{IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q8_K};
        match a {
            F32 => Self::Nothing,
            BF16 => Self::Bf16,
            F16 => Self::Half,
            Q1_0 | Q2_0 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q8_1 | Q8_K | IQ4_NL | MXFP4
            | NVFP4 => Self::SmallBlocks,
            _ => Self::LargeBlocks,
        }
    }

    /// ggml's rank of it: the lower the value, the higher the precision.
    fn rank(self) -> i32 {
        match self {
            Self::Nothing => sys::GGML_PREC_F32,
            Self::Bf16 => sys::GGML_PREC_BF16,
            Self::Half => sys::GGML_PREC_F16,
            Self::LargeBlocks | Self::SmallBlocks => sys::GGML_PREC_Q8,
        }
    }

    /// Whether it holds whatever an F32 holds, however coarsely.
    fn keeps_range(self) -> bool {
        !matches!(self, Self::Half | Self::SmallBlocks)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "f32",
            Self::Bf16 => "bf16",
            Self::Half => "f16, which ends at 65504",
            Self::LargeBlocks => "8-bit blocks",
            Self::SmallBlocks => "8-bit blocks with scales of f16, which end at 8e6",
        }
    }
}

/// Whether `b` keeps the precision that `set_src_precision` asks for. F32 on a MUL_MAT_ID asks for its range alone, which Metal
/// keeps by a rescale of `b`.
fn keeps_source(node: &Node, a: &Layout, b: &Layout) -> Verdict {
    let asked = node.params[SOURCE_B];
    let rounded = Rounded::beside(a.dtype);
    let kept = match asked {
        sys::GGML_PREC_UNDEFINED => true,
        _ if b.dtype == a.dtype => true,
        sys::GGML_PREC_F32 if node.op == Op::MulMatId => rounded.keeps_range(),
        _ => rounded.rank() <= asked,
    };
    require(
        kept,
        format!(
            "set_src_precision({}, 1) is asked for, and the kernels round b to {} where a is {}: ask for less, cast a to F32, or run \
             it on a device that does not round it, such as Metal",
            precision(asked),
            rounded.name(),
            a.dtype
        ),
    )
}

fn precision(raw: i32) -> &'static str {
    match raw {
        sys::GGML_PREC_F32 => "F32",
        sys::GGML_PREC_BF16 => "Bf16",
        sys::GGML_PREC_F16 => "F16",
        sys::GGML_PREC_Q8 => "Q8",
        _ => "Q4",
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::I32;

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

    /// The rank of what `b` becomes, and for experts its range where F32 is asked for.
    #[test]
    fn a_source_precision_is_kept_or_refused() {
        use sys::{GGML_PREC_BF16, GGML_PREC_F16, GGML_PREC_F32, GGML_PREC_Q4, GGML_PREC_Q8};
        let asked = |op: Op, a: DType, b: DType, precision: i32| {
            let (a, b) = (layout(a, &[256, 8, 2]), layout(b, &[256, 1, 3]));
            let src = [a, b, layout(I32, &[1, 3])];
            let sources = if op == Op::MulMat { 2 } else { 3 };
            let mut node = node(op, layout(F32, &[8, 1, 3]), &src[..sources]);
            node.params[SOURCE_B] = precision;
            check(&node)
        };
        let experts = |a, precision| asked(Op::MulMatId, a, F32, precision);
        for (a, kept, refused) in [
            (F32, &[GGML_PREC_F32, GGML_PREC_BF16][..], &[][..]),
            (BF16, &[GGML_PREC_F32, GGML_PREC_BF16], &[]),
            (F16, &[GGML_PREC_F16], &[GGML_PREC_F32, GGML_PREC_BF16]),
            (
                DType::Q4_K,
                &[GGML_PREC_F32, GGML_PREC_Q8, GGML_PREC_Q4],
                &[GGML_PREC_BF16, GGML_PREC_F16],
            ),
            (
                DType::Q4_1,
                &[GGML_PREC_Q8, GGML_PREC_Q4],
                &[GGML_PREC_F32, GGML_PREC_BF16, GGML_PREC_F16],
            ),
        ] {
            for &precision in kept {
                experts(a, precision).unwrap();
            }
            for &precision in refused {
                let reason = experts(a, precision).unwrap_err();
                for part in ["set_src_precision", "cast a to F32", a.name()] {
                    assert!(reason.contains(part), "{reason}");
                }
            }
        }
        // What is not converted keeps its own.
        asked(Op::MulMatId, F16, F16, GGML_PREC_F32).unwrap();
        asked(Op::MulMat, F16, F32, GGML_PREC_F16).unwrap();
        asked(Op::MulMat, DType::Q8_0, F32, GGML_PREC_Q8).unwrap();
        let reason = asked(Op::MulMat, DType::Q8_0, F32, GGML_PREC_F16).unwrap_err();
        assert!(reason.contains("set_src_precision(F16, 1)"), "{reason}");
    }
}
