//! Images, windows and positions.

use super::{Verdict, dtype, packed_rows, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        // The kernel goes by strides.
        (Op::Upscale, [a]) => dtype(a.dtype == F32, "a", a),
        (Op::TimestepEmbedding, [a]) => {
            dtype(a.dtype == F32, "a", a)?;
            packed_rows("a", a)
        }
        (Op::Arange, []) => Ok(()),
        (Op::WinPart | Op::WinUnpart, [a]) => whole("a", a),
        (Op::GetRelPos, [a]) => get_rel_pos(a),
        (Op::AddRelPos, [a, w, h]) => {
            whole("a", a)?;
            whole("w", w)?;
            whole("h", h)
        }
        _ => super::operands(),
    }
}

/// Kernels look at no stride.
fn whole(role: &str, layout: &Layout) -> Verdict {
    dtype(layout.dtype == F32, role, layout)?;
    require(layout.is_contiguous(), format!("{role} is not contiguous"))
}

/// The kernel copies BF16 as it is into a result of F16.
fn get_rel_pos(a: &Layout) -> Verdict {
    dtype(a.dtype == F16, "a", a)?;
    require(a.is_contiguous(), "a is not contiguous")
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::BF16;

    #[test]
    fn kernels_that_look_at_no_stride_get_none() {
        let a = layout(F32, &[4, 6, 6]);
        let of = |op, a: Layout| check(&node(op, layout(F32, &[1]), &[a]));
        for op in [Op::WinPart, Op::WinUnpart] {
            of(op, a).unwrap();
            assert!(of(op, transposed(a)).is_err() && of(op, layout(F16, &[4])).is_err());
        }
        of(Op::Upscale, transposed(a)).unwrap();
        assert!(of(Op::Upscale, layout(F16, &[4])).is_err());
        of(Op::GetRelPos, layout(F16, &[4, 7])).unwrap();
        assert!(of(Op::GetRelPos, layout(BF16, &[4, 7])).is_err());
        let spread = Layout {
            nb: [8, 32, 32, 32],
            ..layout(F32, &[4])
        };
        assert!(of(Op::TimestepEmbedding, spread).is_err());
    }
}
