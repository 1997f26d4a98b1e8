//! Sums, running sums and places of maxima.

use super::super::{Verdict, require};
use super::elementwise::f32_rows;
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// A row is summed in as many blocks as a block has threads, a power of two. Pipelines may have fewer than 1024.
const CUMSUM_ROW: usize = 512 * 512;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Sum | Op::Pool1d, [a]) => counted(a),
        (Op::Cumsum, [a]) => {
            f32_rows("a", a)?;
            require(
                a.ne[0] <= CUMSUM_ROW,
                format!("rows of more than {CUMSUM_ROW} elements may not fit a pipeline's threads"),
            )?;
            counted(a)
        }
        (Op::Argmax, [a]) => {
            f32_rows("a", a)?;
            require(
                a.is_contiguous_1(),
                "the rows of a do not lie at one distance",
            )
        }
        (Op::CountEqual, [a, _]) => counted(a),
        _ => Ok(()),
    }
}

fn counted(a: &Layout) -> Verdict {
    require(
        a.elements() <= i32::MAX as usize,
        "more than 2^31 - 1 elements, which are counted in int",
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::cpu::testing::{layout, node, transposed};
    use super::super::check;
    use super::*;
    use crate::dtype::DType::{F16, F32, I32};

    #[test]
    fn rows_fit_the_threads_of_a_block() {
        let one = |op, a: Layout| check(&node(op, a, &[a]));
        one(Op::Cumsum, layout(F32, &[CUMSUM_ROW, 2])).unwrap();
        assert!(one(Op::Cumsum, layout(F32, &[CUMSUM_ROW + 1])).is_err());
        for op in [Op::Cumsum, Op::Argmax] {
            assert!(one(op, layout(F16, &[4])).is_err(), "{op:?}");
            assert!(one(op, transposed(layout(F32, &[4, 4]))).is_err(), "{op:?}");
        }
        let large = layout(I32, &[1 << 20, 1 << 11]);
        assert!(check(&node(Op::CountEqual, layout(I32, &[1]), &[large, large])).is_err());
    }
}
