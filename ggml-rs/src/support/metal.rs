//! The Metal backend of ggml 0.26.0: what its `supports_op` lets through although no kernel takes it.

use super::{Verdict, require};
use crate::dtype::DType::{BF16, F16, F32, I16, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub fn check(node: &Node) -> Verdict {
    if node.op == Op::View {
        return Ok(());
    }
    let mut layouts = node.src.iter().chain([&node.dst]);
    let in_range = layouts.all(|layout| layout.ne.iter().all(|&n| n <= i32::MAX as usize));
    require(
        in_range,
        "a dimension exceeds 2^31 - 1, the range of the kernels' arguments",
    )?;
    match (node.op, node.src.as_slice()) {
        (Op::MulMat, [a, b]) => mul_mat(a, b),
        (Op::Sum | Op::Pool1d, [a]) => require(
            a.elements() <= i32::MAX as usize,
            "more than 2^31 - 1 elements, which are counted in int",
        ),
        (Op::Repeat, [a]) => require(
            matches!(a.dtype, F32 | F16 | BF16 | I32 | I16),
            format!("there is no kernel for {}", a.dtype),
        ),
        (Op::Cont | Op::Cpy, [a, ..]) => copy(a, &node.dst),
        // OUT_PROD is ours, and its supports_op is exact; the rest is checked in full by ggml's.
        _ => Ok(()),
    }
}

fn mul_mat(a: &Layout, b: &Layout) -> Verdict {
    let multiplies = a.dtype.is_quantized() || matches!(a.dtype, F32 | F16 | BF16);
    require(multiplies, format!("there is no kernel for {}", a.dtype))?;
    require(
        matches!(b.dtype, F32 | F16),
        format!("there is no kernel for b of type {}", b.dtype),
    )?;
    require(
        a.has_packed_rows() && b.has_packed_rows(),
        "kernels read packed rows only",
    )?;
    let repeats = [b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]];
    require(
        repeats.iter().all(|&n| n <= i16::MAX as usize),
        "a is repeated more than 2^15 - 1 times",
    )
}

/// Kernels divide rows of the source into blocks of the destination.
fn copy(a: &Layout, dst: &Layout) -> Verdict {
    let blocks = a.dtype.is_quantized() || dst.dtype.is_quantized();
    require(
        !blocks || a.ne == dst.ne,
        "blocks are not copied while reshaping",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::shape::Shape;

    fn layout(dtype: DType, dims: &[usize]) -> Layout {
        Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
    }

    #[test]
    fn gaps_of_supports_op_are_closed() {
        let one = |op, a: Layout| {
            check(&Node {
                op,
                dst: a,
                src: vec![a],
            })
        };
        for op in [Op::Sum, Op::Pool1d] {
            assert!(one(op, layout(F32, &[8])).is_ok());
            assert!(one(op, layout(F32, &[1 << 20, 1 << 11])).is_err());
        }
        assert!(one(Op::Repeat, layout(DType::Q8_0, &[32])).is_err());
        let product = |a: Layout, b: Layout| {
            check(&Node {
                op: Op::MulMat,
                dst: a,
                src: vec![a, b],
            })
        };
        assert!(product(layout(BF16, &[8, 4]), layout(F32, &[8, 4])).is_ok());
        assert!(product(layout(F32, &[8, 4]), layout(BF16, &[8, 4])).is_err());
        assert!(product(layout(I32, &[8, 4]), layout(F32, &[8, 4])).is_err());
    }
}
