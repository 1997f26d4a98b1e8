//! Convolutions and pooling.

use super::{Verdict, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    let int = |layout: &Layout| layout.elements() <= i32::MAX as usize;
    require(
        node.src.iter().chain([&node.dst]).all(int),
        "more than 2^31 - 1 elements, which are counted in int",
    )?;
    match (node.op, node.src.as_slice()) {
        (Op::ConvTranspose1d, [a, b]) => conv_transpose_1d(a, b),
        (Op::ConvTranspose2d, [a, _]) => conv_transpose_2d(a),
        (Op::Conv2dDw, [a, b]) => require(
            !by_channel(b) || !b.is_contiguous(),
            format!("{} is both contiguous and by channel", a.dtype),
        ),
        (Op::Pool2d, [a]) => require(
            a.is_contiguous() && a.dtype == F32,
            "the kernel takes contiguous F32 only",
        ),
        // supports_op asks for what the other kernels take.
        _ => Ok(()),
    }
}

/// ggml gives the result these strides then.
fn by_channel(b: &Layout) -> bool {
    b.nb[0] > b.nb[2] && b.nb[1] > b.nb[0] && b.nb[2] == 4
}

/// `supports_op` lets everything pass, and the kernel looks at no stride.
fn conv_transpose_1d(a: &Layout, b: &Layout) -> Verdict {
    require(
        matches!(a.dtype, F32 | F16) && b.dtype == F32,
        format!("there is no kernel for {} and {}", a.dtype, b.dtype),
    )?;
    require(
        a.is_contiguous() && b.is_contiguous(),
        "the kernel takes contiguous operands only",
    )
}

/// A thread for each element of the kernel, in one threadgroup.
fn conv_transpose_2d(a: &Layout) -> Verdict {
    const THREADS: usize = 1024;
    require(
        a.ne[0].saturating_mul(a.ne[1]) <= THREADS,
        format!("a kernel has more than {THREADS} elements, for each of which there is a thread"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::dtype::DType::{BF16, F16, F32};
    use crate::graph::node::{Node, Op};
    use crate::graph::ops::testing::{layout, transposed};
    use crate::layout::Layout;

    fn takes(op: Op, src: &[Layout]) -> bool {
        let node = Node {
            op,
            dst: layout(F32, &[1]),
            src: src.to_vec(),
            slots: Vec::new(),
            params: [0; 16],
            float_operands: false,
        };
        check(&node).is_ok()
    }

    #[test]
    fn what_supports_op_lets_through_is_refused() {
        let b = layout(F32, &[8, 4]);
        assert!(takes(Op::ConvTranspose1d, &[layout(F16, &[3, 5, 4]), b]));
        assert!(!takes(Op::ConvTranspose1d, &[layout(BF16, &[3, 5, 4]), b]));
        let turned = transposed(layout(F32, &[5, 3, 4]));
        assert!(!takes(Op::ConvTranspose1d, &[turned, b]));
        let b = layout(F32, &[8, 8, 4]);
        assert!(takes(
            Op::ConvTranspose2d,
            &[layout(F32, &[32, 32, 1, 4]), b]
        ));
        assert!(!takes(
            Op::ConvTranspose2d,
            &[layout(F32, &[33, 32, 1, 4]), b]
        ));
        assert!(takes(Op::Pool2d, &[b]) && !takes(Op::Pool2d, &[transposed(b)]));
        assert!(!takes(Op::Im2col, &[b, layout(F32, &[1 << 16, 1 << 15])]));
    }
}
