//! How many tensors a rule makes: each node's backward on its own, between stand-ins for what it reads.
//!
//! For gradient checks. The room that a backward reserves rests on a bound for every node, which sums over a graph would not show.

use std::collections::{HashMap, HashSet};

use ggml_sys as sys;

use super::expand::{self, Loss, MAX_TENSORS};
use super::{Raw, check};
use crate::error::{Call, Error, Result};
use crate::graph::{Context, Tensor, node};
use crate::guard;

/// The most tensors that a backward of `loss` makes for one node, where gradients come in any layout and are added to others.
///
/// # Errors
/// As a backward; [`Error::Internal`] naming the op for more than are reserved.
pub(crate) fn most_tensors(call: Call, loss: Tensor<'_>) -> Result<usize> {
    let forward = super::forward(loss);
    let needed = check::differentiable(call, &forward, loss.ptr())?;
    let reached = check::reached(&forward, &needed, loss.ptr());
    let mut most = 0;
    for &tensor in forward.iter().filter(|tensor| reached.contains(tensor)) {
        // SAFETY: the builder keeps its tensors alive.
        if unsafe { tensor.as_ref() }.op == sys::GGML_OP_NONE {
            continue;
        }
        let made = made_for(tensor, &needed)?;
        if made > MAX_TENSORS {
            // SAFETY: as above.
            let op = unsafe { node::op_name(tensor) };
            return Err(Error::Internal {
                step: "the backward of a node",
                message: format!("{made} tensors for {op}, {MAX_TENSORS} are reserved"),
            });
        }
        most = most.max(made);
    }
    Ok(most)
}

fn made_for(node: Raw, needed: &HashSet<Raw>) -> Result<usize> {
    // SAFETY: a constant of ggml's, without arguments.
    let overhead = unsafe { sys::ggml_tensor_overhead() };
    // The node, its operands, and a gradient for each.
    let stand_ins = StandIns {
        context: Context::new(overhead * 2 * (sys::GGML_MAX_SRC as usize + 1))?,
    };
    let (forward, gradients) = stand_ins.make(node, needed)?;
    let copy = forward[forward.len() - 1];
    let room = 16 * MAX_TENSORS;
    let made = Context::new(room * overhead)?;
    let scratch = expand::scratch(room + forward.len())?;
    let _loss = Loss::mark(copy);
    expand::expand(&made, &scratch, &forward, &gradients, room + forward.len())?;
    Ok(expand::tensors(&made).len())
}

struct StandIns {
    context: Context,
}

impl StandIns {
    /// Inputs like the operands of `node`, and last a node like it; and what is there of the gradients of those.
    fn make(&self, node: Raw, needed: &HashSet<Raw>) -> Result<(Vec<Raw>, HashMap<Raw, Raw>)> {
        // SAFETY: the builder keeps its tensors alive.
        let original = unsafe { node.as_ref() };
        let mut copy = self.like(node)?;
        let mut by_original = HashMap::from([(node, copy)]);
        let mut gradients = HashMap::from([(copy, self.gradient(node)?)]);
        let mut forward = Vec::new();
        for source in original.src.iter().filter_map(|&source| Raw::new(source)) {
            if by_original.contains_key(&source) {
                continue;
            }
            let mut input = self.like(source)?;
            if needed.contains(&source) {
                // SAFETY: the stand-in is new, and nothing else refers to it.
                unsafe { input.as_mut() }.flags |= sys::GGML_TENSOR_FLAG_PARAM;
                gradients.insert(input, self.gradient(source)?);
            }
            by_original.insert(source, input);
            forward.push(input);
        }
        // SAFETY: as above.
        let to = unsafe { copy.as_mut() };
        to.op = original.op;
        to.op_params = original.op_params;
        to.view_src = original.view_src;
        for (to, &source) in to.src.iter_mut().zip(&original.src) {
            let source = Raw::new(source).and_then(|source| by_original.get(&source));
            *to = source.map_or(std::ptr::null_mut(), |source| source.as_ptr());
        }
        forward.push(copy);
        Ok((forward, gradients))
    }

    /// A tensor of the same type and layout.
    fn like(&self, tensor: Raw) -> Result<Raw> {
        // SAFETY: the builder keeps its tensors alive.
        let from = unsafe { tensor.as_ref() };
        let mut new = self.tensor(from.type_, &from.ne)?;
        // SAFETY: the tensor is new, and nothing else refers to it.
        unsafe { new.as_mut() }.nb = from.nb;
        Ok(new)
    }

    /// A gradient of this shape that must be copied wherever a contiguous one is read: its strides run backwards.
    fn gradient(&self, of: Raw) -> Result<Raw> {
        // SAFETY: the builder keeps its tensors alive.
        let ne = unsafe { of.as_ref() }.ne;
        let mut new = self.tensor(sys::GGML_TYPE_F32, &ne)?;
        let mut stride = size_of::<f32>();
        for d in (0..4).rev() {
            // SAFETY: the tensor is new, and nothing else refers to it.
            unsafe { new.as_mut() }.nb[d] = stride;
            stride *= ne[d] as usize;
        }
        Ok(new)
    }

    fn tensor(&self, dtype: sys::ggml_type, ne: &[i64; 4]) -> Result<Raw> {
        // SAFETY: the context has room for all stand-ins; `ne` has four entries that ggml itself wrote.
        let new = guard::call("ggml_new_tensor", || unsafe {
            sys::ggml_new_tensor(self.context.as_ptr(), dtype, 4, ne.as_ptr())
        })?;
        Raw::new(new).ok_or_else(|| Error::Internal {
            step: "ggml_new_tensor",
            message: "no tensor was made".into(),
        })
    }
}
