//! Arithmetic and functions, element by element.

use super::{Verdict, dtype, packed, packed_rows, quantizes, require};
use crate::dtype::DType::{BF16, F16, F32};
use crate::graph::node::{Node, Op, Unary};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Add, [a, b]) if a.dtype.is_quantized() => add_quantized(a, b),
        (Op::Add | Op::Sub | Op::Mul | Op::Div, [a, b]) => binary(a, b),
        (Op::Scale, [a]) => scale(a),
        (Op::Unary(Unary::Relu), [a]) => packed(a, &[F32, F16, BF16]),
        _ => super::operands(),
    }
}

fn binary(a: &Layout, b: &Layout) -> Verdict {
    let same = a.dtype == b.dtype && matches!(a.dtype, F32 | F16 | BF16);
    let mixed = matches!(a.dtype, F16 | BF16) && b.dtype == F32;
    require(
        same || mixed,
        format!("{} with {} is not supported", a.dtype, b.dtype),
    )?;
    packed_rows("a", a)
}

fn add_quantized(a: &Layout, b: &Layout) -> Verdict {
    // Without a row function back to the type, the kernel copies floats over the blocks.
    dtype(quantizes(a.dtype), "a", a)?;
    dtype(b.dtype == F32, "b", b)?;
    require(a.ne == b.ne, "b is not repeated over a quantized a")?;
    packed_rows("a", a)?;
    packed_rows("b", b)
}

fn scale(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | BF16), "a", a)?;
    require(a.is_contiguous(), "a is not contiguous")
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node};
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn quantized_sums_need_a_way_back() {
        let add = |a: Layout, b: Layout| check(&node(Op::Add, a, &[a, b]));
        add(layout(DType::Q8_0, &[64, 2]), layout(F32, &[64, 2])).unwrap();
        assert!(add(layout(DType::Q8_0, &[64, 2]), layout(F32, &[64])).is_err());
        assert!(add(layout(DType::IQ3_S, &[256]), layout(F32, &[256])).is_err());
        let q8 = layout(DType::Q8_0, &[32]);
        assert!(check(&node(Op::Mul, q8, &[q8, layout(F32, &[32])])).is_err());
    }
}
