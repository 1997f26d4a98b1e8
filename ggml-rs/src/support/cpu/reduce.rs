//! Sums and other reductions.

use super::{Verdict, dtype, packed, require};
use crate::dtype::DType::{BF16, F16, F32, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Sum, [a]) if a.dtype == F32 => Ok(()),
        (Op::Sum, [a]) => packed(a, &[F16, BF16]),
        (Op::SumRows | Op::Mean | Op::Cumsum | Op::Argmax, [a]) => packed(a, &[F32]),
        (Op::CountEqual, [a, b]) => count_equal(a, b),
        _ => super::operands(),
    }
}

/// The kernel finds its rows by wrong strides in more than two dimensions.
fn count_equal(a: &Layout, b: &Layout) -> Verdict {
    dtype(a.dtype == I32, "a", a)?;
    dtype(b.dtype == I32, "b", b)?;
    require(a.ne == b.ne, "the shapes differ")?;
    require(
        a.ne[2] == 1 && a.ne[3] == 1,
        "only matrices are compared: reshape both",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;

    #[test]
    fn reductions_take_what_their_kernels_do_not_abort_on() {
        let one = |op, a: Layout| check(&node(op, layout(F32, &[1]), &[a]));
        let spread = transposed(layout(F32, &[4, 6]));
        for op in [Op::SumRows, Op::Mean, Op::Cumsum, Op::Argmax] {
            one(op, layout(F32, &[5, 3])).unwrap();
            for refused in [layout(F16, &[5]), layout(BF16, &[5]), spread] {
                assert!(one(op, refused).is_err(), "{op:?} of {refused:?}");
            }
        }
        one(Op::Pool1d, layout(F32, &[5, 3])).unwrap();
        for refused in [layout(BF16, &[5]), layout(I32, &[5]), spread] {
            assert!(one(Op::Pool1d, refused).is_err(), "{refused:?}");
        }
        one(Op::Sum, spread).unwrap();
        assert!(one(Op::Sum, transposed(layout(F16, &[4, 6]))).is_err());
    }

    #[test]
    fn matrices_are_compared() {
        let count = |a: Layout, b: Layout| check(&node(Op::CountEqual, a, &[a, b]));
        let a = layout(I32, &[4, 6]);
        count(a, transposed(layout(I32, &[6, 4]))).unwrap();
        for (a, b) in [
            (a, layout(I32, &[4])),
            (a, layout(F32, &[4, 6])),
            (layout(I32, &[4, 6, 2]), layout(I32, &[4, 6, 2])),
        ] {
            assert!(count(a, b).is_err(), "{a:?} {b:?}");
        }
    }
}
