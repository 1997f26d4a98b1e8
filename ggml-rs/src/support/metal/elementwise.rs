//! Arithmetic and functions, element by element.

use super::super::{Verdict, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::graph::ops::window::Window;
use crate::layout::Layout;

/// A copy that does not split rows has one thread for each element of a row, in one threadgroup.
const THREADS: usize = 1024;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        // supports_op looks at the operands only.
        (Op::Add | Op::Sub | Op::Mul | Op::Div, [a, _]) => require(
            node.dst.dtype == a.dtype,
            format!("there is no kernel from {} to {}", a.dtype, node.dst.dtype),
        ),
        (Op::LeakyRelu, [a]) => packed_rows("a", a),
        (Op::Glu(_), [a]) => even_rows("a", a),
        (Op::Glu(_), [a, b]) => {
            even_rows("a", a)?;
            even_rows("b", b)
        }
        (Op::Acc | Op::Set, [a, b]) => windowed(node, a, b),
        _ => Ok(()),
    }
}

/// `a` is copied first, by a kernel that leaves out what is behind the first threadgroup of a row.
fn windowed(node: &Node, a: &Layout, b: &Layout) -> Verdict {
    let in_place = node.params[4] != 0;
    require(
        in_place || a.ne[0] <= THREADS,
        format!("rows of more than {THREADS} elements are not copied whole"),
    )?;
    require(a.dtype == b.dtype, "the types differ")?;
    require(a.is_contiguous(), "a is not contiguous")?;
    packed_rows("a", a)?;
    packed_rows("b", b)?;
    Window::of(&node.params)?.check(a, b)
}

pub(super) fn packed_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        layout.has_packed_rows(),
        format!("the rows of {role} are not packed"),
    )
}

fn even_rows(role: &str, layout: &Layout) -> Verdict {
    packed_rows(role, layout)?;
    require(
        layout.is_contiguous_1(),
        format!("the rows of {role} do not lie at one distance"),
    )
}

/// F32 operands, whose rows kernels read one element after the other.
pub(super) fn f32_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        layout.dtype == F32,
        format!("there is no kernel for {role} of type {}", layout.dtype),
    )?;
    packed_rows(role, layout)
}

/// As [`f32_rows`], or F16.
pub(super) fn float_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        matches!(layout.dtype, F32 | F16),
        format!("there is no kernel for {role} of type {}", layout.dtype),
    )?;
    packed_rows(role, layout)
}

#[cfg(test)]
mod tests {
    use super::super::super::cpu::testing::{layout, node, transposed};
    use super::super::check;
    use super::*;

    #[test]
    fn results_of_another_type_have_no_kernel() {
        let half = layout(F16, &[8]);
        check(&node(Op::Add, half, &[half, half])).unwrap();
        assert!(check(&node(Op::Add, layout(F32, &[8]), &[half, half])).is_err());
    }

    #[test]
    fn long_rows_are_only_written_in_place() {
        let set = |row: usize, in_place: i32| {
            let a = layout(F32, &[row, 2]);
            let mut node = node(Op::Set, a, &[a, layout(F32, &[4])]);
            node.params[..5].copy_from_slice(&[16, 16, 16, 0, in_place]);
            check(&node)
        };
        set(1024, 0).unwrap();
        set(1025, 1).unwrap();
        assert!(set(1025, 0).is_err());
    }

    #[test]
    fn asserted_layouts_are_refused_before() {
        let spread = transposed(layout(F32, &[4, 6]));
        assert!(check(&node(Op::LeakyRelu, spread, &[spread])).is_err());
    }
}
