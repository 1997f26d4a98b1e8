//! Attention in one op.

use super::{Verdict, require};
use crate::dtype::DType::{F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::FlashAttnExt, [q, k, v, ..]) => flash(node, q, k, v),
        // supports_op asks for what the other kernels take.
        _ => Ok(()),
    }
}

/// The sizes of heads of keys and values for which there are kernels.
const HEADS: [[usize; 2]; 16] = [
    [32, 32],
    [40, 40],
    [48, 48],
    [64, 64],
    [72, 72],
    [80, 80],
    [96, 64],
    [96, 96],
    [112, 112],
    [128, 128],
    [192, 128],
    [192, 192],
    [256, 256],
    [320, 256],
    [512, 512],
    [576, 512],
];

/// Kernels add up in float, but round queries to f16, or to bf16 where many meet keys of bf16.
const NO_FLOAT: &str = "float() is asked for, and every kernel rounds queries to f16 or bf16: compose the attention of mul_mat with \
    Staging::Float and soft_max, or give a Scheduler the CPU after this device, which keeps the promise";

/// What the encoder asserts, or looks up, and `supports_op` does not ask for.
fn flash(node: &Node, q: &Layout, k: &Layout, v: &Layout) -> Verdict {
    require(
        HEADS.contains(&[k.ne[0], v.ne[0]]),
        format!(
            "there is no kernel for heads of {} and {}",
            k.ne[0], v.ne[0]
        ),
    )?;
    require(
        q.dtype == F32,
        format!("there is no kernel for q of type {}", q.dtype),
    )?;
    require(
        [q, k, v].iter().all(|x| x.has_packed_rows()),
        "kernels read packed rows only",
    )?;
    require(
        k.ne[2..] == v.ne[2..],
        "kernels take as many heads of values as of keys",
    )?;
    require(q.ne[1] < 1 << 16, "there are 65536 queries or more")?;
    // Kernels read four elements at once.
    let aligned = |x: &Layout, bytes: usize| x.nb[1..].iter().all(|nb| nb.is_multiple_of(bytes));
    let scalars = |x: &Layout| x.dtype.is_quantized() || aligned(x, 4 * x.dtype.block_bytes());
    require(
        scalars(q) && scalars(k) && scalars(v),
        "rows do not begin at multiples of four elements",
    )?;
    if let Some(mask) = node.slot(3) {
        require(
            mask.dtype == F16
                && mask.is_contiguous()
                && mask.ne[0] == k.ne[1]
                && mask.ne[1] >= q.ne[1],
            "the mask does not cover keys and queries",
        )?;
    }
    if let Some(sinks) = node.slot(4) {
        require(
            sinks.dtype == F32 && sinks.has_packed_rows(),
            "sinks are not an array of F32",
        )?;
    }
    let float = node.params[3] == ggml_sys::GGML_PREC_F32;
    require(!float, NO_FLOAT)
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::dtype::DType::{F16, F32};
    use crate::graph::node::{Node, Op};
    use crate::graph::ops::testing::layout;
    use crate::layout::Layout;

    fn takes(src: &[Layout]) -> bool {
        let node = Node {
            op: Op::FlashAttnExt,
            dst: layout(F32, &[1]),
            src: src.to_vec(),
            slots: src.iter().copied().map(Some).collect(),
            params: [0; 16],
            float_operands: false,
        };
        check(&node).is_ok()
    }

    #[test]
    fn what_the_encoder_asserts_is_refused() {
        let (q, k) = (layout(F32, &[64, 5, 4]), layout(F16, &[64, 9, 2]));
        assert!(takes(&[q, k, k]));
        assert!(!takes(&[layout(F16, &[64, 5, 4]), k, k]));
        assert!(!takes(&[q, k, layout(F16, &[48, 9, 2])]));
        assert!(!takes(&[q, k, layout(F16, &[64, 9, 4])]));
        assert!(!takes(&[layout(F32, &[64, 1 << 16]), k, k]));
        assert!(!takes(&[q, k, k, layout(F16, &[9, 4])]));
        let odd = Layout {
            nb: [4, 260, 1300, 5200],
            ..q
        };
        assert!(!takes(&[odd, k, k]));
    }

    #[test]
    fn floats_are_refused_with_a_way_out() {
        let (q, k) = (layout(F32, &[64, 5, 4]), layout(F16, &[64, 9, 2]));
        let mut node = Node {
            op: Op::FlashAttnExt,
            dst: layout(F32, &[1]),
            src: vec![q, k, k],
            slots: [q, k, k].map(Some).to_vec(),
            params: [0; 16],
            float_operands: false,
        };
        check(&node).unwrap();
        node.params[3] = ggml_sys::GGML_PREC_F32;
        let reason = check(&node).unwrap_err();
        assert!(
            reason.contains("Staging::Float") && reason.contains("Scheduler"),
            "{reason}"
        );
    }
}
