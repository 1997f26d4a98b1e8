//! Which ops a gradient flows through.

use std::collections::BTreeSet;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::error::Result;
use crate::graph::{has_backward, node};
use crate::runtime;

/// The ops that have a backward, as ggml names them.
///
/// Those whose gradient is zero wherever it exists, such as STEP, are not among them.
///
/// ```
/// let ops = ggml_rs::check::differentiable_ops()?;
/// assert!(ops.contains("MUL_MAT") && !ops.contains("STEP") && !ops.contains("FLASH_ATTN_EXT"));
/// # Ok::<(), ggml_rs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) on a processor that ggml was not compiled for.
pub fn differentiable_ops() -> Result<BTreeSet<String>> {
    runtime::ready()?;
    let functions = |op| match op {
        sys::GGML_OP_UNARY => sys::GGML_UNARY_OP_COUNT,
        sys::GGML_OP_GLU => sys::GGML_GLU_OP_COUNT,
        _ => 1,
    };
    let all = (0..sys::GGML_OP_COUNT).filter(|&op| op != sys::GGML_OP_NONE);
    let all = all.flat_map(|op| (0..functions(op)).map(move |function| (op, function)));
    Ok(all
        .filter_map(|(op, function)| differentiable(op, function))
        .collect())
}

/// The name of an op, if it has a backward.
fn differentiable(op: sys::ggml_op, function: i32) -> Option<String> {
    // SAFETY: a tensor is plain numbers and pointers, for which zero is valid.
    let mut tensor: sys::ggml_tensor = unsafe { std::mem::zeroed() };
    tensor.op = op;
    tensor.op_params[0] = function;
    let tensor = NonNull::from(&mut tensor);
    // SAFETY: the tensor is alive; only its op and parameters are read.
    unsafe {
        node::op(tensor)
            .filter(|&op| has_backward(op))
            .map(|_| node::op_name(tensor))
    }
}
