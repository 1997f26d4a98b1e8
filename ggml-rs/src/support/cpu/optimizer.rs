//! Optimizer steps.

use super::{Verdict, require};
use crate::dtype::DType::F32;
use crate::graph::node::{Node, Op};

/// Kernels find all elements by the places of the first operand's, and take them for F32 without looking.
pub(super) fn check(node: &Node) -> Verdict {
    let (tensors, params, count) = match (node.op, node.src.as_slice()) {
        (Op::OptStepAdamw, [tensors @ .., params]) if tensors.len() == 4 => (tensors, params, 7),
        (Op::OptStepSgd, [tensors @ .., params]) if tensors.len() == 2 => (tensors, params, 2),
        _ => return super::operands(),
    };
    require(
        node.src
            .iter()
            .all(|src| src.dtype == F32 && src.is_packed()),
        "operands are not contiguous f32",
    )?;
    require(
        tensors.iter().all(|src| src.ne == tensors[0].ne) && params.elements() == count,
        "the operands' shapes differ",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::F16;
    use crate::layout::Layout;

    #[test]
    fn steps_take_packed_floats_of_one_shape() {
        let sgd = |a: Layout, grad: Layout, n: usize| {
            check(&node(Op::OptStepSgd, a, &[a, grad, layout(F32, &[n])]))
        };
        let a = layout(F32, &[4, 6]);
        sgd(a, a, 2).unwrap();
        assert!(sgd(a, a, 7).is_err());
        assert!(sgd(a, layout(F16, &[4, 6]), 2).is_err());
        assert!(sgd(a, transposed(layout(F32, &[6, 4])), 2).is_err());
        assert!(check(&node(Op::OptStepAdamw, a, &[a, a, a, layout(F32, &[7])])).is_err());
        check(&node(Op::OptStepAdamw, a, &[a, a, a, a, layout(F32, &[7])])).unwrap();
    }
}
