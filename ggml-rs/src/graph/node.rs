//! What a finished node is: its op, and the layouts of its result and operands.

use std::ffi::CStr;
use std::ptr::NonNull;

use ggml_sys as sys;

pub(crate) use super::op::{Glu, Op, Unary, op};
use crate::error::{Operand, Result};
use crate::layout::Layout;

/// A node as the support tables see it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub op: Op,
    pub dst: Layout,
    /// The operands, without the optional ones that the node does not have.
    pub src: Vec<Layout>,
    /// Every place for an operand, up to the last that is taken: optional operands are told apart by place.
    pub slots: Vec<Option<Layout>>,
    /// The op's parameters, as ggml stores them.
    pub params: [i32; 16],
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
            let slots = slots(tensor.as_ref())?;
            let src = slots.iter().flatten().copied().collect();
            let params = tensor.as_ref().op_params;
            let float_operands = asks_for_float(op, &params);
            Ok(Some(Self {
                op,
                dst,
                src,
                slots,
                params,
                float_operands,
            }))
        }
    }

    /// A parameter that ggml stores as the bits of an f32.
    pub fn f32_param(&self, index: usize) -> f32 {
        f32::from_bits(self.params[index] as u32)
    }

    /// Where a VIEW begins, in bytes from the start of what it is a view of: ggml stores a `size_t` in its first parameters.
    pub fn view_offset(&self) -> usize {
        let [low, high] = [self.params[0], self.params[1]].map(|half| u64::from(half as u32));
        usize::try_from(high << 32 | low).unwrap_or(usize::MAX)
    }

    /// The operand in a place, where the node has one there.
    pub fn slot(&self, index: usize) -> Option<&Layout> {
        self.slots.get(index).and_then(Option::as_ref)
    }

    /// The operands as errors show them.
    pub fn operands(&self) -> Vec<Operand> {
        self.src
            .iter()
            .zip(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"])
            .map(|(layout, role)| layout.operand(role))
            .collect()
    }
}

/// The layouts of a tensor's operands by place, up to the last place that is taken.
///
/// # Safety
/// The operands must be alive.
unsafe fn slots(tensor: &sys::ggml_tensor) -> Result<Vec<Option<Layout>>> {
    let last = tensor.src.iter().rposition(|source| !source.is_null());
    tensor.src[..last.map_or(0, |last| last + 1)]
        .iter()
        .map(|&source| {
            // SAFETY: the caller vouches for the operands.
            (!source.is_null())
                .then(|| unsafe { Layout::of(source) })
                .transpose()
        })
        .collect()
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
    let op = unsafe { tensor.as_ref() }.op;
    matches!(
        op,
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
