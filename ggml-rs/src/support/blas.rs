//! BLAS: why its `supports_op` refuses a node. It takes large products of floats, and nothing else.

use super::WAY_OUT;
use crate::dtype::DType::F32;
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// The least rows, columns and length of a MUL_MAT.
const LEAST: usize = 32;

pub(super) fn refused(node: &Node) -> Option<String> {
    match (node.op, node.src.as_slice()) {
        (Op::MulMat, [a, b]) => mul_mat(node, a, b),
        (Op::OutProd, [a, b]) => out_prod(a, b),
        _ => Some(format!("it runs MUL_MAT and OUT_PROD alone: {WAY_OUT}")),
    }
}

fn mul_mat(node: &Node, a: &Layout, b: &Layout) -> Option<String> {
    let [m, n, ..] = node.dst.ne;
    if node.params[1] == ggml_sys::GGML_HINT_SRC0_IS_HADAMARD {
        return Some(format!("it has no transform of rows: {WAY_OUT}"));
    }
    if m.min(n).min(b.ne[0]) < LEAST {
        return Some(format!(
            "it takes products of at least {LEAST} rows, columns and products in a sum, and this is {m} by {n} by {}: {WAY_OUT}",
            b.ne[0]
        ));
    }
    if b.dtype != F32 {
        return Some(format!("b is {}, and it takes F32: cast b to F32", b.dtype));
    }
    contiguous(&[("a", a), ("b", b)])
}

fn out_prod(a: &Layout, b: &Layout) -> Option<String> {
    for (role, layout) in [("a", a), ("b", b)] {
        if layout.dtype != F32 {
            return Some(format!(
                "{role} is {}, and it takes F32: cast {role} to F32",
                layout.dtype
            ));
        }
        if layout.ne[2..] != [1, 1] {
            return Some(format!(
                "{role} has more than one matrix, and it takes one: {WAY_OUT}"
            ));
        }
    }
    contiguous(&[("a", a), ("b", b)])
}

fn contiguous(operands: &[(&str, &Layout)]) -> Option<String> {
    let (role, _) = operands
        .iter()
        .find(|(_, layout)| !layout.is_contiguous())?;
    Some(format!("{role} is not contiguous: call cont() on it first"))
}

#[cfg(test)]
mod tests {
    use super::super::cpu::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::F16;

    #[test]
    fn a_reason_names_operand_limit_and_way_out() {
        let product = |op, a: Layout, b: Layout| {
            let dst = layout(F32, &[a.ne[1], b.ne[1]]);
            refused(&node(op, dst, &[a, b])).unwrap_or_default()
        };
        let large = layout(F32, &[64, 64]);
        for (reason, parts) in [
            (
                refused(&node(Op::Add, large, &[large, large])).unwrap_or_default(),
                ["MUL_MAT and OUT_PROD alone", "Scheduler"],
            ),
            (
                product(Op::MulMat, large, layout(F32, &[64, 8])),
                ["64 by 8 by 64", "Scheduler"],
            ),
            (
                product(Op::MulMat, large, layout(F16, &[64, 64])),
                ["b is f16", "cast"],
            ),
            (
                product(Op::OutProd, large, layout(F32, &[64, 64, 2])),
                ["b has more than one matrix", "Scheduler"],
            ),
            (
                product(Op::OutProd, transposed(large), large),
                ["a is not contiguous", "cont()"],
            ),
        ] {
            assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
        }
        assert_eq!(product(Op::MulMat, large, large), "");
    }
}
