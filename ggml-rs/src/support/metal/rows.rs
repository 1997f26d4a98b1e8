//! Rows chosen by ids, and the ops that make ids.

use super::{Verdict, require};
use crate::dtype::DType::{BF16, F16, F32, I32, I64, NVFP4, TQ1_0};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::GetRows, [a, ids]) => get_rows(a, ids),
        (Op::SetRows, [b, ids, a]) => set_rows(a, b, ids),
        (Op::AddId, [a, b, ids]) => add_id(a, b, ids),
        (Op::Argsort | Op::TopK, [a]) => sort(a),
        // supports_op refuses the rest.
        _ => Ok(()),
    }
}

fn get_rows(a: &Layout, ids: &Layout) -> Verdict {
    let dequantizes = a.dtype.dequantizes() && !matches!(a.dtype, NVFP4 | TQ1_0);
    require(
        dequantizes || matches!(a.dtype, F32 | F16 | BF16 | I32),
        format!("there is no kernel for {}", a.dtype),
    )?;
    require(
        a.has_packed_rows() && ids.dtype == I32,
        "kernels read packed rows by I32 ids only",
    )
}

fn set_rows(a: &Layout, b: &Layout, ids: &Layout) -> Verdict {
    require(
        a.has_packed_rows() && b.has_packed_rows(),
        "kernels read and write packed rows only",
    )?;
    require(
        matches!(ids.dtype, I32 | I64),
        format!("there is no kernel for ids of {}", ids.dtype),
    )
}

/// `supports_op` lets F16 pass, on which the encoder asserts; the kernel knows three dimensions.
fn add_id(a: &Layout, b: &Layout, ids: &Layout) -> Verdict {
    require(
        a.dtype == F32 && b.dtype == F32,
        format!("there is no kernel for {} and {}", a.dtype, b.dtype),
    )?;
    require(
        a.ne[3] == 1 && [a, b, ids].iter().all(|x| x.has_packed_rows()),
        "the kernel takes packed rows of three dimensions",
    )
}

/// `supports_op` lets everything pass. Rows are numbered, and elements of the result counted, in int.
fn sort(a: &Layout) -> Verdict {
    require(
        a.dtype == F32 && a.has_packed_rows(),
        "kernels sort packed rows of F32 only",
    )?;
    require(
        a.elements() <= i32::MAX as usize,
        "more than 2^31 - 1 elements, which are counted in int",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::dtype::DType::{self, F16, F32, I32, I64, NVFP4, Q8_1};
    use crate::graph::node::{Node, Op};
    use crate::graph::ops::testing::{layout, transposed};
    use crate::layout::Layout;

    fn takes(op: Op, dst: Layout, src: &[Layout]) -> bool {
        let node = Node {
            op,
            dst,
            src: src.to_vec(),
            slots: Vec::new(),
            params: [0; 16],
            float_operands: false,
        };
        check(&node).is_ok()
    }

    #[test]
    fn what_supports_op_lets_through_is_refused() {
        let ids = layout(I32, &[3]);
        let get = |dtype: DType| takes(Op::GetRows, ids, &[layout(dtype, &[256, 5]), ids]);
        assert!(get(F32) && get(DType::Q4_K) && get(I32));
        assert!(!get(Q8_1) && !get(NVFP4) && !get(I64) && !get(DType::I8));
        let (a, b) = (layout(F32, &[8, 2, 3]), layout(F32, &[8, 4]));
        let ids = layout(I32, &[2, 3]);
        assert!(takes(Op::AddId, a, &[a, b, ids]));
        let halves = layout(F16, &[8, 2, 3]);
        assert!(!takes(Op::AddId, halves, &[halves, b, ids]));
        for op in [Op::Argsort, Op::TopK] {
            assert!(takes(op, ids, &[layout(F32, &[8, 2])]));
            assert!(!takes(op, ids, &[layout(F16, &[8, 2])]));
            assert!(!takes(op, ids, &[transposed(layout(F32, &[8, 2]))]));
            assert!(!takes(op, ids, &[layout(F32, &[1 << 20, 1 << 11])]));
        }
    }
}
