//! Arithmetic and functions, element by element.

use super::super::{Verdict, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::graph::ops::window::Window;
use crate::layout::Layout;

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

/// The window is cut as a view, whose rows are packed.
fn windowed(node: &Node, a: &Layout, b: &Layout) -> Verdict {
    require(a.dtype == b.dtype, "the types differ")?;
    require(a.is_contiguous(), "a is not contiguous")?;
    packed_rows("a", a)?;
    packed_rows("b", b)?;
    Window::of(&node.params)?.check(a, b)
}

pub(super) fn packed_rows(role: &str, layout: &Layout) -> Verdict {
    if layout.has_packed_rows() {
        return Ok(());
    }
    Err(format!(
        "{role}: its rows are not packed (nb[0] = {}, element {}): call cont() on it first",
        layout.nb[0],
        layout.dtype.block_bytes()
    ))
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
        format!(
            "there is no kernel for {role} of type {}: cast {role} to f32",
            layout.dtype
        ),
    )?;
    packed_rows(role, layout)
}

/// As [`f32_rows`], or F16.
pub(super) fn float_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        matches!(layout.dtype, F32 | F16),
        format!(
            "there is no kernel for {role} of type {}: cast {role} to f32",
            layout.dtype
        ),
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
    fn asserted_layouts_are_refused_before() {
        let spread = transposed(layout(F32, &[4, 6]));
        assert!(check(&node(Op::LeakyRelu, spread, &[spread])).is_err());
    }
}
