//! What a finished node is: its op, and the layouts of its result and operands.

use std::ffi::CStr;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::error::{Operand, Result};
use crate::layout::Layout;

/// The ops that this crate builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// No computation: an input, or another look at the same memory.
    View,
    OutProd,
    MulMat,
    MulMatId,
    Cont,
    Cpy,
    Add,
    Sub,
    Mul,
    Div,
    Scale,
    Relu,
    Sum,
    SumRows,
    /// Of each row.
    Mean,
    Pool1d,
    Repeat,
}

/// A tensor's op; `None` for one that this crate does not build.
///
/// # Safety
/// `tensor` must be alive.
pub(crate) unsafe fn op(tensor: NonNull<sys::ggml_tensor>) -> Option<Op> {
    // SAFETY: the caller vouches for the tensor.
    let raw = unsafe { tensor.as_ref() }.op;
    Some(match raw {
        sys::GGML_OP_NONE
        | sys::GGML_OP_RESHAPE
        | sys::GGML_OP_VIEW
        | sys::GGML_OP_PERMUTE
        | sys::GGML_OP_TRANSPOSE => Op::View,
        sys::GGML_OP_OUT_PROD => Op::OutProd,
        sys::GGML_OP_MUL_MAT => Op::MulMat,
        sys::GGML_OP_MUL_MAT_ID => Op::MulMatId,
        sys::GGML_OP_CONT => Op::Cont,
        sys::GGML_OP_CPY => Op::Cpy,
        sys::GGML_OP_ADD => Op::Add,
        sys::GGML_OP_SUB => Op::Sub,
        sys::GGML_OP_MUL => Op::Mul,
        sys::GGML_OP_DIV => Op::Div,
        sys::GGML_OP_SCALE => Op::Scale,
        // SAFETY: the tensor is alive and its op is UNARY.
        sys::GGML_OP_UNARY => return unsafe { unary(tensor) },
        sys::GGML_OP_SUM => Op::Sum,
        sys::GGML_OP_SUM_ROWS => Op::SumRows,
        sys::GGML_OP_MEAN => Op::Mean,
        sys::GGML_OP_POOL_1D => Op::Pool1d,
        sys::GGML_OP_REPEAT => Op::Repeat,
        _ => return None,
    })
}

/// A unary tensor's function.
///
/// # Safety
/// `tensor` must be alive and its op UNARY, which ggml asserts.
unsafe fn unary(tensor: NonNull<sys::ggml_tensor>) -> Option<Op> {
    // SAFETY: the caller vouches for the tensor.
    let function = unsafe { sys::ggml_get_unary_op(tensor.as_ptr()) };
    (function == sys::GGML_UNARY_OP_RELU).then_some(Op::Relu)
}

/// A node as the support tables see it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub op: Op,
    pub dst: Layout,
    pub src: Vec<Layout>,
    /// A MUL_MAT or MUL_MAT_ID that asks for operands to be read with more than half precision.
    pub float_operands: bool,
}

impl Node {
    /// # Safety
    /// `tensor` and its operands must be alive.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) for a data type that this crate does not know.
    pub unsafe fn of(tensor: NonNull<sys::ggml_tensor>) -> Result<Option<Self>> {
        // SAFETY: the caller vouches for the tensor and its operands.
        unsafe {
            let Some(op) = op(tensor) else {
                return Ok(None);
            };
            let dst = Layout::of(tensor.as_ptr())?;
            let sources = tensor
                .as_ref()
                .src
                .iter()
                .filter(|source| !source.is_null());
            let src = sources
                .map(|&source| Layout::of(source))
                .collect::<Result<_>>()?;
            let float_operands = asks_for_float(op, &tensor.as_ref().op_params);
            Ok(Some(Self {
                op,
                dst,
                src,
                float_operands,
            }))
        }
    }

    /// The operands as errors show them.
    pub fn operands(&self) -> Vec<Operand> {
        self.src
            .iter()
            .zip(["a", "b", "c", "d"])
            .map(|(layout, role)| layout.operand(role))
            .collect()
    }
}

/// Reads what `ggml_prec_set_src` and `ggml_mul_mat_id_set_staging` wrote.
fn asks_for_float(op: Op, params: &[i32]) -> bool {
    let above_half = |precision: i32| {
        // ggml's precisions descend as their values rise.
        precision != sys::GGML_PREC_UNDEFINED && precision < sys::GGML_PREC_F16
    };
    match op {
        Op::MulMat => params[2..4].iter().any(|&precision| above_half(precision)),
        Op::MulMatId => params[4] != sys::GGML_STAGING_HALF,
        _ => false,
    }
}

/// The tensor that owns a tensor's memory: itself, unless it is a view. ggml never makes a view of a view.
///
/// # Safety
/// `tensor` must be alive.
pub(crate) unsafe fn base(tensor: NonNull<sys::ggml_tensor>) -> NonNull<sys::ggml_tensor> {
    // SAFETY: the caller vouches for the tensor.
    NonNull::new(unsafe { tensor.as_ref() }.view_src).unwrap_or(tensor)
}

/// Whether a tensor computes nothing: an input, or another look at the same memory.
///
/// # Safety
/// `tensor` must be alive.
pub(crate) unsafe fn is_empty(tensor: NonNull<sys::ggml_tensor>) -> bool {
    // SAFETY: the caller vouches for the tensor.
    matches!(
        unsafe { tensor.as_ref() }.op,
        sys::GGML_OP_NONE
            | sys::GGML_OP_RESHAPE
            | sys::GGML_OP_VIEW
            | sys::GGML_OP_PERMUTE
            | sys::GGML_OP_TRANSPOSE
    )
}

/// The tensors, other than its own result, to whose memory a node writes.
///
/// A result that is a view and that is computed is a write in place; that is how ggml marks CPY, SET, SET_ROWS and every
/// `_inplace` op. AdamW moreover updates its two moments.
///
/// # Safety
/// `tensor` and its operands must be alive.
pub(crate) unsafe fn written(tensor: NonNull<sys::ggml_tensor>) -> Vec<NonNull<sys::ggml_tensor>> {
    // SAFETY: the caller vouches for the tensor and its operands.
    unsafe {
        if is_empty(tensor) {
            return Vec::new();
        }
        let node = tensor.as_ref();
        let moments: &[_] = match node.op {
            sys::GGML_OP_OPT_STEP_ADAMW => &node.src[2..4],
            _ => &[],
        };
        let moments = moments.iter().filter_map(|&source| NonNull::new(source));
        NonNull::new(node.view_src)
            .into_iter()
            .chain(moments.map(|moment| base(moment)))
            .collect()
    }
}

/// A tensor's name.
///
/// # Safety
/// `tensor` must be alive.
pub(crate) unsafe fn name(tensor: NonNull<sys::ggml_tensor>) -> String {
    // SAFETY: the caller vouches for the tensor; ggml returns its NUL-terminated name.
    unsafe { text(sys::ggml_get_name(tensor.as_ptr())) }
}

/// The name of a tensor's op, as ggml prints it.
///
/// # Safety
/// `tensor` must be alive.
pub(crate) unsafe fn op_name(tensor: NonNull<sys::ggml_tensor>) -> String {
    // SAFETY: the caller vouches for the tensor; ggml returns a static string.
    unsafe { text(sys::ggml_op_desc(tensor.as_ptr())) }
}

/// # Safety
/// `chars` must be NUL-terminated.
unsafe fn text(chars: *const std::ffi::c_char) -> String {
    // SAFETY: the caller vouches for the string.
    unsafe { CStr::from_ptr(chars) }
        .to_string_lossy()
        .into_owned()
}
