//! Rows chosen by ids, and the ops that make ids.

use super::{Verdict, dtype, is_float, packed_rows, quantizes, require};
use crate::dtype::DType::{F16, F32, I32, I64};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::GetRows, [a, ids]) => get_rows(a, ids),
        (Op::GetRowsBack, [a, ids]) => get_rows_back(a, ids, &node.dst),
        (Op::SetRows, [b, ids, a]) => set_rows(a, b, ids),
        (Op::AddId, [a, b, ids]) => add_id(a, b, ids),
        (Op::Argsort | Op::TopK, [a]) => sort(a),
        _ => super::operands(),
    }
}

fn get_rows(a: &Layout, ids: &Layout) -> Verdict {
    let takes = is_float(a.dtype) || a.dtype == I32 || a.dtype.dequantizes();
    dtype(takes, "a", a)?;
    dtype(ids.dtype == I32, "ids", ids)?;
    packed_rows("a", a)
}

/// The kernel takes the ids for an array, as long as `a` has rows.
fn get_rows_back(a: &Layout, ids: &Layout, dst: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    dtype(ids.dtype == I32, "ids", ids)?;
    dtype(dst.dtype == F32, "the result", dst)?;
    packed_rows("a", a)?;
    packed_rows("ids", ids)?;
    require(
        ids.elements() == a.ne[1] && a.ne[1] == a.shape().rows(),
        "there is not an id for each row of a",
    )
}

/// Without a row function to the type, the kernel calls none.
fn set_rows(a: &Layout, b: &Layout, ids: &Layout) -> Verdict {
    dtype(is_float(a.dtype) || quantizes(a.dtype), "a", a)?;
    dtype(matches!(b.dtype, F32 | F16), "b", b)?;
    dtype(matches!(ids.dtype, I32 | I64), "ids", ids)?;
    packed_rows("a", a)?;
    packed_rows("b", b)
}

fn add_id(a: &Layout, b: &Layout, ids: &Layout) -> Verdict {
    dtype(a.dtype == F32, "a", a)?;
    dtype(b.dtype == F32, "b", b)?;
    dtype(ids.dtype == I32, "ids", ids)?;
    packed_rows("a", a)?;
    packed_rows("b", b)
}

/// Kernels step from row to row by `nb[1]`, whatever the higher dimensions' strides are.
fn sort(a: &Layout) -> Verdict {
    dtype(a.dtype == F32, "a", a)?;
    require(
        a.is_packed(),
        "the strides of a are not those of a new tensor",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn rows_are_of_types_with_a_row_function() {
        let (b, ids) = (layout(F32, &[256, 3]), layout(I32, &[3]));
        for to in DType::ALL {
            let a = layout(to, &[256, 5]);
            let set = check(&node(Op::SetRows, a, &[b, ids, a]));
            assert_eq!(set.is_ok(), is_float(to) || quantizes(to), "{to}: {set:?}");
            let got = check(&node(Op::GetRows, b, &[a, ids]));
            let takes = is_float(to) || to.dequantizes() || to == I32;
            assert_eq!(got.is_ok(), takes, "{to}: {got:?}");
        }
        let turned = transposed(layout(F32, &[5, 256]));
        assert!(check(&node(Op::GetRows, b, &[turned, ids])).is_err());
    }

    #[test]
    fn sorts_step_over_whole_rows() {
        let a = layout(F32, &[4, 3, 2]);
        let swapped = Layout {
            ne: [4, 2, 3, 1],
            nb: [16, 48, 16, 96],
            ..a
        };
        for op in [Op::Argsort, Op::TopK] {
            let of = |a: Layout| check(&node(op, layout(I32, &a.ne), &[a]));
            of(a).unwrap();
            assert!(of(swapped).is_err() && of(layout(F16, &[4])).is_err());
        }
    }

    #[test]
    fn gradients_of_rows_count_their_ids() {
        let back = |a: &[usize], ids: &[usize]| {
            let (a, ids) = (layout(F32, a), layout(I32, ids));
            check(&node(Op::GetRowsBack, layout(F32, &[8, 5]), &[a, ids]))
        };
        back(&[8, 3], &[3]).unwrap();
        assert!(back(&[8, 3], &[4]).is_err());
        assert!(back(&[8, 3, 2], &[6]).is_err());
    }
}
