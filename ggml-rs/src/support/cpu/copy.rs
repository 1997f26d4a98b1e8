//! Copies, within a type and from one to another.

use super::{Verdict, is_float, packed_rows, quantizes, require};
use crate::dtype::DType::{F32, I32};
use crate::graph::node::Node;
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match node.src.as_slice() {
        [a, ..] => copy(a, &node.dst),
        [] => super::operands(),
    }
}

fn copy(a: &Layout, dst: &Layout) -> Verdict {
    let (from, to) = (a.dtype, dst.dtype);
    match () {
        () if from == to && from.is_quantized() => copy_blocks(a, dst),
        () if from == to => Ok(()),
        () if is_float(from) && is_float(to) => Ok(()),
        () if (from, to) == (F32, I32) || (from, to) == (I32, F32) => Ok(()),
        () if is_float(from) && quantizes(to) => copy_to_quantized(a, dst),
        () if from.dequantizes() && to == F32 => copy_from_quantized(dst),
        () => Err(format!("a copy from {from} to {to} is not supported")),
    }
}

/// The kernel's other paths take a block for an element.
fn copy_blocks(a: &Layout, dst: &Layout) -> Verdict {
    let packed = a.ne == dst.ne && a.has_packed_rows() && dst.has_packed_rows();
    let contiguous = a.is_contiguous() && dst.is_contiguous();
    require(
        packed || contiguous,
        "blocks are only copied between packed rows of one shape or contiguous tensors",
    )
}

/// The kernel counts its scratch in rows of dst and uses it in rows of a.
fn copy_to_quantized(a: &Layout, dst: &Layout) -> Verdict {
    packed_rows("a", a)?;
    require(
        dst.is_contiguous(),
        "a quantized destination is not contiguous",
    )?;
    require(
        a.ne == dst.ne,
        "quantizing while reshaping is not supported",
    )
}

fn copy_from_quantized(dst: &Layout) -> Verdict {
    packed_rows("the destination", dst)?;
    require(
        dst.is_contiguous(),
        "the destination of a dequantizing copy is not contiguous",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::{self, F16};
    use crate::graph::node::Op;

    #[test]
    fn copies_of_blocks_keep_their_rows() {
        let to = |a: Layout, dst: Layout| check(&node(Op::Cpy, dst, &[a, dst]));
        to(transposed(layout(F32, &[8, 4])), layout(F16, &[8, 4])).unwrap();
        to(layout(F32, &[64, 2]), layout(DType::Q8_0, &[64, 2])).unwrap();
        to(layout(DType::Q4_K, &[256, 2]), layout(F32, &[512])).unwrap();
        // The scratch of this one would be written past its end.
        assert!(to(layout(F32, &[64, 2]), layout(DType::Q8_0, &[32, 4])).is_err());
        assert!(to(layout(F32, &[256]), layout(DType::IQ2_XXS, &[256])).is_err());
        assert!(to(layout(DType::Q4_K, &[256]), layout(F16, &[256])).is_err());
        assert!(to(layout(I32, &[8]), layout(F16, &[8])).is_err());
    }
}
