//! Joining, padding and masking.

use super::super::{Verdict, require};
use super::elementwise::f32_rows;
use crate::dtype::DType::{BF16, F16, F32, I16, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Repeat, [a]) => require(
            matches!(a.dtype, F32 | F16 | BF16 | I32 | I16),
            format!(
                "there is no kernel for a of type {}: cast a to f32",
                a.dtype
            ),
        ),
        (Op::Pad, [a]) => pad(node, a),
        (Op::PadReflect1d | Op::Roll | Op::Diag | Op::Tri, [a]) => f32_rows("a", a),
        _ => Ok(()),
    }
}

/// The kernel goes round once.
fn pad(node: &Node, a: &Layout) -> Verdict {
    let circular = node.params[8] != 0;
    let before = [0, 2, 4, 6].map(|i| node.params[i]);
    let mut rounds = before.into_iter().zip(a.ne);
    let once = rounds.all(|(n, ne)| usize::try_from(n).is_ok_and(|n| !circular || n <= ne));
    require(once, format!("{before:?} elements before {:?}", a.ne))
}

#[cfg(test)]
mod tests {
    use super::super::super::cpu::testing::{layout, node, transposed};
    use super::super::check;
    use super::*;

    #[test]
    fn only_types_with_kernels_are_moved() {
        let one = |op, a: Layout| check(&node(op, a, &[a]));
        for op in [Op::PadReflect1d, Op::Roll, Op::Diag, Op::Tri] {
            one(op, layout(F32, &[4, 4])).unwrap();
            assert!(one(op, layout(F16, &[4, 4])).is_err(), "{op:?}");
            assert!(one(op, transposed(layout(F32, &[4, 4]))).is_err(), "{op:?}");
        }
    }

    #[test]
    fn what_goes_round_goes_round_once() {
        let a = layout(F32, &[4, 3]);
        let mut node = node(Op::Pad, a, &[a]);
        node.params[0] = 5;
        check(&node).unwrap();
        node.params[8] = 1;
        assert!(check(&node).is_err());
    }
}
