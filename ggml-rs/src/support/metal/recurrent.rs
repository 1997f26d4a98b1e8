//! State-space and linear-attention recurrences, and triangular systems.

use super::{Verdict, require};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    let int = |layout: &Layout| layout.elements() <= i32::MAX as usize;
    require(
        node.src.iter().chain([&node.dst]).all(int),
        "more than 2^31 - 1 elements, which are counted in int",
    )?;
    match (node.op, node.src.as_slice()) {
        (Op::SsmConv, [a, kernel]) => require(
            a.is_contiguous() && kernel.is_contiguous(),
            "the encoder asserts that operands are contiguous",
        ),
        (Op::SsmScan, [s, x, ..]) => ssm_scan(s, x),
        (Op::RwkvWkv6 | Op::RwkvWkv7, [k, ..]) => require(
            k.ne[0] == 64,
            format!("there is no kernel for heads of {}", k.ne[0]),
        ),
        (Op::GatedDeltaNet, [q, k, v, ..]) => gated_delta_net(q, k, v),
        (Op::SolveTri, [a, b]) => solve_tri(a, b),
        // supports_op refuses the rest.
        _ => Ok(()),
    }
}

/// A thread for each element of a state's row, in one threadgroup; the states' place in the result is an int, in bytes.
fn ssm_scan(s: &Layout, x: &Layout) -> Verdict {
    require(s.is_packed(), "the kernel takes states for arrays")?;
    require(
        s.ne[0] <= 1024,
        "states have more than 1024 elements in a row",
    )?;
    require(
        x.elements() <= i32::MAX as usize / 4,
        "outputs have more than 2^31 - 1 bytes, which are counted in int",
    )
}

/// There are kernels for these sizes; tokens are counted in 16 bits.
fn gated_delta_net(q: &Layout, k: &Layout, v: &Layout) -> Verdict {
    require(
        matches!(v.ne[0], 32 | 64 | 128),
        format!("there is no kernel for heads of {}", v.ne[0]),
    )?;
    require(
        q.ne[3] == v.ne[3] && k.ne[3] == v.ne[3],
        "the kernel takes queries and keys of every sequence",
    )?;
    require(
        v.ne[2] <= i16::MAX as usize,
        "more than 2^15 - 1 tokens, which the kernel counts in 16 bits",
    )
}

/// The kernel keeps 8 rows of `a` in threadgroup memory, and counts in 16 bits.
fn solve_tri(a: &Layout, b: &Layout) -> Verdict {
    require(
        a.ne[0] <= 1024,
        format!("{} unknowns are more than fit threadgroup memory", a.ne[0]),
    )?;
    require(
        b.ne[0] <= i16::MAX as usize,
        "more than 2^15 - 1 columns, which the kernel counts in 16 bits",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::dtype::DType::F32;
    use crate::graph::node::{Node, Op};
    use crate::graph::ops::testing::{layout, transposed};
    use crate::layout::Layout;

    fn takes(op: Op, src: &[Layout]) -> bool {
        let node = Node {
            op,
            dst: layout(F32, &[1]),
            src: src.to_vec(),
            slots: Vec::new(),
            params: [0; 16],
            float_operands: false,
        };
        check(&node).is_ok()
    }

    #[test]
    fn what_supports_op_lets_through_is_refused() {
        let square = |n: usize| layout(F32, &[n, n]);
        assert!(takes(Op::SolveTri, &[square(31), square(31)]));
        assert!(!takes(Op::SolveTri, &[square(1025), square(1025)]));
        assert!(takes(Op::SsmConv, &[square(8), square(8)]));
        assert!(!takes(Op::SsmConv, &[transposed(square(8)), square(8)]));
        for op in [Op::RwkvWkv6, Op::RwkvWkv7] {
            assert!(takes(op, &[layout(F32, &[64, 2, 3])]));
            assert!(!takes(op, &[layout(F32, &[128, 2, 3])]));
        }
        let values = |n: usize, tokens: usize| [layout(F32, &[n, 2, tokens]); 3];
        assert!(takes(Op::GatedDeltaNet, &values(64, 5)));
        assert!(!takes(Op::GatedDeltaNet, &values(96, 5)));
        assert!(!takes(Op::GatedDeltaNet, &values(32, 1 << 15)));
        let x = layout(F32, &[8, 4]);
        assert!(takes(Op::SsmScan, &[layout(F32, &[128, 8]), x]));
        assert!(!takes(Op::SsmScan, &[layout(F32, &[2048, 8]), x]));
    }
}
