//! Repeating, joining, padding, masking.

use super::{Verdict, packed, require};
use crate::dtype::DType::{BF16, F16, F32, I8, I16, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Repeat, [a]) => packed(a, &[F32, F16, BF16, I32, I16]),
        (Op::Concat, [a, b]) => concat(a, b),
        (Op::Pad, [a]) => pad(node, a),
        (Op::RepeatBack | Op::PadReflect1d | Op::Roll | Op::Diag | Op::Tri, [a]) => {
            packed(a, &[F32])
        }
        (Op::DiagMaskInf | Op::DiagMaskZero, [a]) => mask(a, &node.dst),
        _ => super::operands(),
    }
}

/// Types without a kernel of their own are copied row by row.
fn concat(a: &Layout, b: &Layout) -> Verdict {
    require(a.dtype == b.dtype, "the types differ")?;
    let by_element = matches!(a.dtype, F32 | F16 | BF16 | I32 | I16 | I8);
    require(
        by_element || (a.has_contiguous_rows() && b.has_contiguous_rows()),
        format!("{} is joined in packed rows only", a.dtype),
    )
}

/// The kernel goes round once.
fn pad(node: &Node, a: &Layout) -> Verdict {
    super::dtype(a.dtype == F32, "a", a)?;
    let circular = node.params[8] != 0;
    let before = [0, 2, 4, 6].map(|i| node.params[i]);
    let mut rounds = before.into_iter().zip(a.ne);
    let once = rounds.all(|(n, ne)| usize::try_from(n).is_ok_and(|n| !circular || n <= ne));
    require(once, format!("{before:?} elements before {:?}", a.ne))
}

/// The kernel copies what is contiguous, or works in place; and it steps through all matrices by `nb[2]`.
fn mask(a: &Layout, dst: &Layout) -> Verdict {
    packed(a, &[F32])?;
    require(
        a.is_contiguous() || a == dst,
        "a is not contiguous, and not written over",
    )?;
    require(
        dst.ne[3] == 1 || dst.nb[3] == dst.nb[2] * dst.ne[2],
        "matrices do not lie at one distance",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn only_types_with_kernels_are_moved_by_elements() {
        let one = |op, a: Layout| check(&node(op, a, &[a]));
        let square = layout(F32, &[4, 4]);
        for op in [
            Op::RepeatBack,
            Op::PadReflect1d,
            Op::Roll,
            Op::Tri,
            Op::DiagMaskInf,
        ] {
            one(op, square).unwrap();
            for refused in [layout(F16, &[4, 4]), transposed(square)] {
                assert!(one(op, refused).is_err(), "{op:?} {refused:?}");
            }
        }
        one(Op::Pad, transposed(square)).unwrap();
        assert!(one(Op::Pad, layout(I32, &[4])).is_err());
    }

    #[test]
    fn what_goes_round_goes_round_once() {
        let a = layout(F32, &[4, 3]);
        let pad = |before: [i32; 2], circular: i32| {
            let mut node = node(Op::Pad, a, &[a]);
            (node.params[0], node.params[2], node.params[8]) = (before[0], before[1], circular);
            check(&node)
        };
        pad([9, 9], 0).unwrap();
        pad([4, 3], 1).unwrap();
        for (before, circular) in [([5, 0], 1), ([0, 4], 1), ([-1, 0], 0)] {
            assert!(pad(before, circular).is_err(), "{before:?} {circular}");
        }
    }

    #[test]
    fn joined_rows_are_packed_or_have_a_kernel() {
        let concat = |a: Layout, b: Layout| check(&node(Op::Concat, a, &[a, b]));
        for dtype in [F32, F16, BF16, I32, I16, I8] {
            let a = transposed(layout(dtype, &[4, 4]));
            concat(a, a).unwrap();
        }
        let blocks = layout(DType::Q4_0, &[64, 2]);
        concat(blocks, blocks).unwrap();
        let i64s = layout(DType::I64, &[4, 4]);
        concat(i64s, i64s).unwrap();
        assert!(concat(i64s, transposed(i64s)).is_err());
        assert!(concat(layout(F32, &[4]), layout(F16, &[4])).is_err());
    }

    #[test]
    fn masks_over_gaps_are_in_place() {
        let gaps = Layout {
            nb: [4, 32, 128, 256],
            ..layout(F32, &[4, 4, 2, 2])
        };
        let mask = |a, dst| check(&node(Op::DiagMaskZero, dst, &[a]));
        mask(gaps, gaps).unwrap();
        assert!(mask(gaps, layout(F32, &[4, 4, 2, 2])).is_err());
        let apart = Layout {
            nb: [4, 32, 128, 512],
            ..gaps
        };
        assert!(mask(apart, apart).is_err());
    }
}
