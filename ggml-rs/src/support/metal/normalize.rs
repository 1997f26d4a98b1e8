//! Norms, softmax and rotary positions.

use super::super::{Verdict, require};
use super::elementwise::{f32_rows, float_rows, packed_rows};
use crate::dtype::DType::{F32, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Norm | Op::RmsNorm | Op::L2Norm, [a]) => f32_rows("a", a),
        (Op::GroupNorm, [a]) => group_norm(a, node.params[0]),
        (Op::SoftMax, [a, ..]) => soft_max(node, a),
        (Op::Rope | Op::RopeBack, [a, positions, ..]) => rope(a, positions, node.slot(2)),
        _ => Ok(()),
    }
}

/// The kernel has no batches: of several, it would compute the first. It counts elements in int.
fn group_norm(a: &Layout, groups: i32) -> Verdict {
    f32_rows("a", a)?;
    require(a.is_contiguous(), "a is not contiguous")?;
    require(
        a.ne[3] == 1,
        "only the first of several batches is normalized",
    )?;
    require(
        a.elements() <= i32::MAX as usize,
        "more than 2^31 - 1 elements, which are counted in int",
    )?;
    require(groups > 0, "there are no groups")
}

fn soft_max(node: &Node, a: &Layout) -> Verdict {
    f32_rows("a", a)?;
    if let Some(mask) = node.slot(1) {
        float_rows("the mask", mask)?;
    }
    if let Some(sinks) = node.slot(2) {
        f32_rows("sinks", sinks)?;
    }
    Ok(())
}

/// supports_op says yes to all.
fn rope(a: &Layout, positions: &Layout, factors: Option<&Layout>) -> Verdict {
    float_rows("a", a)?;
    require(a.ne[0].is_multiple_of(2), "rows are odd")?;
    require(positions.dtype == I32, "positions are not I32")?;
    packed_rows("positions", positions)?;
    let Some(factors) = factors else {
        return Ok(());
    };
    require(factors.dtype == F32, "factors are not F32")?;
    packed_rows("factors", factors)
}

#[cfg(test)]
mod tests {
    use super::super::super::cpu::testing::{layout, node, transposed};
    use super::super::check;
    use super::*;
    use crate::dtype::DType::{BF16, F16};

    #[test]
    fn only_types_with_kernels_are_normalized() {
        let one = |op, a: Layout| {
            let mut node = node(op, a, &[a]);
            node.params[0] = 2;
            check(&node)
        };
        for op in [
            Op::Norm,
            Op::RmsNorm,
            Op::L2Norm,
            Op::GroupNorm,
            Op::SoftMax,
        ] {
            one(op, layout(F32, &[4, 6, 2])).unwrap();
            assert!(one(op, layout(F16, &[4, 6, 2])).is_err(), "{op:?}");
            assert!(
                one(op, transposed(layout(F32, &[6, 4, 2]))).is_err(),
                "{op:?}"
            );
        }
        let batches = layout(F32, &[4, 6, 2, 2]);
        assert!(one(Op::GroupNorm, batches).unwrap_err().contains("batches"));
    }

    #[test]
    fn only_floats_are_turned() {
        let rope = |a: Layout, positions: Layout| check(&node(Op::Rope, a, &[a, positions]));
        let positions = layout(I32, &[6]);
        rope(layout(F16, &[8, 4, 6]), positions).unwrap();
        assert!(rope(layout(BF16, &[8, 4, 6]), positions).is_err());
        assert!(rope(layout(F32, &[7, 4, 6]), positions).is_err());
        assert!(rope(layout(F32, &[8, 4, 6]), layout(F32, &[6])).is_err());
    }
}
