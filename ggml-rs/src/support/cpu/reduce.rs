//! Sums and other reductions.

use super::{Verdict, packed};
use crate::dtype::DType::{BF16, F16, F32};
use crate::graph::node::{Node, Op};

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Sum, [a]) => packed(a, &[F32, F16, BF16]),
        (Op::SumRows | Op::Mean, [a]) => packed(a, &[F32]),
        _ => super::operands(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::I32;
    use crate::layout::Layout;

    #[test]
    fn reductions_take_what_their_kernels_do_not_abort_on() {
        let one = |op, a: Layout| check(&node(op, layout(F32, &[1]), &[a]));
        let spread = transposed(layout(F32, &[4, 6]));
        for op in [Op::SumRows, Op::Mean] {
            one(op, layout(F32, &[5, 3])).unwrap();
            for refused in [layout(F16, &[5]), layout(BF16, &[5]), spread] {
                assert!(one(op, refused).is_err(), "{op:?} of {refused:?}");
            }
        }
        one(Op::Pool1d, layout(F32, &[5, 3])).unwrap();
        for refused in [layout(BF16, &[5]), layout(I32, &[5]), spread] {
            assert!(one(Op::Pool1d, refused).is_err(), "{refused:?}");
        }
        assert!(one(Op::Sum, spread).is_err());
    }
}
