//! Which nodes a device runs, decided before it is asked to.
//!
//! A device's own `supports_op` is not enough: the CPU backend's answers yes to nearly everything and its
//! kernels assert afterwards, on threads where an assertion cannot be caught. Our tables hold what the
//! kernels of ggml 0.26.0 really take; a node must pass its device's table and `supports_op`.

mod blas;
mod cpu;
mod metal;

use std::ptr::NonNull;

use ggml_sys as sys;

use crate::device::{Device, DeviceKind};
use crate::error::Unsupported;
use crate::graph::node::{self, Node};
use crate::logging;

/// The reason why a node is refused.
type Verdict = std::result::Result<(), String>;

/// Why `device` does not run `tensor`; `None` if it does.
///
/// # Safety
/// `tensor` and its operands must be alive.
pub(crate) unsafe fn check(
    device: Device,
    tensor: NonNull<sys::ggml_tensor>,
) -> Option<Unsupported> {
    // SAFETY: the caller vouches for the tensor.
    let (node, op, name) = unsafe { (Node::of(tensor), node::op_name(tensor), node::name(tensor)) };
    let (verdict, operands) = match node {
        Err(unknown) => (Err(unknown.to_string()), Vec::new()),
        Ok(None) => (
            Err("this crate does not build the op".to_owned()),
            Vec::new(),
        ),
        // SAFETY: the device lives as long as the process, the caller vouches for the tensor.
        Ok(Some(node)) => (
            table(device, &node).and_then(|()| unsafe { ask(device, tensor, &node) }),
            node.operands(),
        ),
    };
    let device = device.name().to_owned();
    verdict.err().map(|reason| Unsupported {
        device,
        op,
        node: name,
        operands,
        reason,
    })
}

fn table(device: Device, node: &Node) -> Verdict {
    if device.is_metal() {
        metal::check(node)
    } else if device.kind() == DeviceKind::Cpu {
        cpu::check(node)
    } else {
        Ok(())
    }
}

/// # Safety
/// `tensor` and its operands must be alive.
unsafe fn ask(device: Device, tensor: NonNull<sys::ggml_tensor>, node: &Node) -> Verdict {
    // Metal looks pipelines up under a lock.
    let _lines = logging::hold();
    // SAFETY: the device lives as long as the process, the caller vouches for the tensor.
    if unsafe { sys::ggml_backend_dev_supports_op(device.as_ptr(), tensor.as_ptr()) } {
        return Ok(());
    }
    let known = if device.is_metal() {
        metal::refused(node)
    } else if device.registry_name() == "BLAS" {
        blas::refused(node)
    } else {
        None
    };
    let reason = known.unwrap_or_else(|| unexplained(node));
    Err(match cpu::check(node) {
        Ok(()) => reason,
        Err(_) => without_way_out(&reason).to_owned(),
    })
}

/// A reason without the advice to schedule the CPU, which does not run the node either.
fn without_way_out(reason: &str) -> &str {
    match reason.strip_suffix(WAY_OUT) {
        Some(rest) => {
            let rest = rest.trim_end();
            let rest = rest.strip_suffix("or").unwrap_or(rest).trim_end();
            rest.trim_end_matches([':', ',', ';'])
        }
        None => reason,
    }
}

/// The text of a refusal for which no condition is known: types and layouts stand in front of it.
fn unexplained(node: &Node) -> String {
    let types: Vec<_> = node.src.iter().map(|src| src.dtype.name()).collect();
    format!(
        "the device's supports_op refuses the op with operands of {}, and this library knows no condition that it breaks: the device \
         may lack what the kernel needs (bf16, matrices of simdgroups, reductions); {WAY_OUT}",
        types.join(", ")
    )
}

/// What helps where the CPU runs the node. It ends a reason, or is not in it.
pub(crate) const WAY_OUT: &str = "run the plan with a Scheduler that has the CPU too";

/// Fails with `reason` unless `holds`.
fn require(holds: bool, reason: impl Into<String>) -> Verdict {
    if holds { Ok(()) } else { Err(reason.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_that_does_not_help_is_left_out() {
        for (before, reason) in [
            (
                "a is i32, and kernels take f32: ",
                "a is i32, and kernels take f32",
            ),
            ("a is f64: cast a to f32, or ", "a is f64: cast a to f32"),
            (
                "this library knows no condition; ",
                "this library knows no condition",
            ),
        ] {
            assert_eq!(without_way_out(&format!("{before}{WAY_OUT}")), reason);
        }
        let other = "a is not contiguous: call cont() on it first";
        assert_eq!(without_way_out(other), other);
    }
}
