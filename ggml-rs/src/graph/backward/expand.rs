//! The call of ggml's backward, in a context that it cannot exhaust.

use std::collections::HashMap;
use std::ptr::null_mut;

use ggml_sys as sys;

use super::Raw;
use crate::error::{Error, OpError, Result};
use crate::graph::Context;
use crate::guard;

/// No rule makes more tensors than this for one node: `GGML_BACKWARD_MAX_TENSORS` of `ggml-backward.h`, where the rules are.
pub(super) const MAX_TENSORS: usize = 64;

/// What a backward made.
pub(super) struct Made {
    pub contexts: Vec<Context>,
    /// In the order of creation, so each comes after those it depends on.
    pub tensors: Vec<Raw>,
    /// By the marked tensor.
    pub gradients: HashMap<Raw, Raw>,
}

/// Makes the nodes that compute the gradients of `loss`.
///
/// `forward` is everything that the loss depends on, in the order of creation; `needed` how many of them need a gradient. All was
/// checked, so that ggml has nothing to refuse.
///
/// # Errors
/// [`Error::Alloc`]; [`Error::Param`] for more tensors than ggml counts; [`Error::Internal`] when it refuses after all.
#[track_caller]
pub(super) fn backward(forward: &[Raw], loss: Raw, needed: usize) -> Result<Made> {
    let bound = MAX_TENSORS.saturating_mul(needed).saturating_add(1);
    let size = bound.saturating_add(forward.len());
    // ggml counts nodes in an `int` and doubles the count for its hash table.
    if size > (i32::MAX / 4) as usize {
        let detail = format!("{needed} nodes to differentiate are more than ggml counts");
        return Err(Error::Param(OpError::new("backward", detail, Vec::new())));
    }
    // SAFETY: a constant of ggml's, without arguments.
    let overhead = unsafe { sys::ggml_tensor_overhead() };
    let context = Context::new(bound.saturating_mul(overhead))?;
    // SAFETY: a function of its arguments alone.
    let bytes = guard::call("ggml_graph_overhead_custom", || unsafe {
        sys::ggml_graph_overhead_custom(size, true)
    })?;
    // The graph is needed during the call alone.
    let scratch = Context::new(bytes)?;
    let gradients = {
        let _loss = Loss::mark(loss);
        expand(&context, &scratch, forward, loss, size)?
    };
    Ok(Made {
        tensors: tensors(&context),
        contexts: vec![context],
        gradients,
    })
}

/// Flags a tensor as a loss as long as it lives, so that a later backward of another one does not find two.
struct Loss(Raw);

impl Loss {
    fn mark(loss: Raw) -> Self {
        // SAFETY: the builder keeps its tensors alive. The setter asserts what was checked, one element of F32.
        unsafe { (*loss.as_ptr()).flags |= sys::GGML_TENSOR_FLAG_LOSS as i32 };
        Self(loss)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (*self.0.as_ptr()).flags &= !(sys::GGML_TENSOR_FLAG_LOSS as i32) };
    }
}

fn expand(
    context: &Context,
    scratch: &Context,
    forward: &[Raw],
    loss: Raw,
    size: usize,
) -> Result<HashMap<Raw, Raw>> {
    // SAFETY: the context was sized for this graph.
    let graph = guard::call("ggml_new_graph_custom", || unsafe {
        sys::ggml_new_graph_custom(scratch.as_ptr(), size, true)
    })?;
    // Each after its sources, which keeps ggml's recursive walk flat.
    for tensor in forward {
        // SAFETY: graph and tensor are alive, and the graph has room for all of them.
        guard::call("ggml_build_forward_expand", || unsafe {
            sys::ggml_build_forward_expand(graph, tensor.as_ptr());
        })?;
    }
    // SAFETY: the loss is alive, one element of F32, and the context has room for one more than the bound.
    let one = guard::call("ggml_fill", || unsafe {
        sys::ggml_fill(context.as_ptr(), loss.as_ptr(), 1.0)
    })?;
    // SAFETY: the graph is alive.
    let nodes = usize::try_from(unsafe { sys::ggml_graph_n_nodes(graph) }).unwrap_or(0);
    let mut accumulators = vec![null_mut(); nodes];
    for (i, accumulator) in accumulators.iter_mut().enumerate() {
        // SAFETY: the index is below the number of nodes.
        if unsafe { sys::ggml_graph_node(graph, i as i32) } == loss.as_ptr() {
            *accumulator = one;
        }
    }
    // SAFETY: graph, context and tensors are alive; there is an accumulator, or null, for every node.
    guard::call("ggml_build_backward_expand", || unsafe {
        sys::ggml_build_backward_expand(context.as_ptr(), graph, accumulators.as_mut_ptr());
    })?;
    let mut gradients = HashMap::new();
    for &tensor in forward {
        // SAFETY: the builder keeps its tensors alive.
        let marked = unsafe { tensor.as_ref() }.flags & sys::GGML_TENSOR_FLAG_PARAM as i32 != 0;
        // SAFETY: graph and tensor are alive.
        let gradient = unsafe { sys::ggml_graph_get_grad(graph, tensor.as_ptr()) };
        if let Some(gradient) = Raw::new(gradient).filter(|_| marked) {
            gradients.insert(tensor, gradient);
        }
    }
    Ok(gradients)
}

/// The tensors of a context, in the order of creation.
pub(super) fn tensors(context: &Context) -> Vec<Raw> {
    // SAFETY: the context is alive.
    let mut next = unsafe { sys::ggml_get_first_tensor(context.as_ptr()) };
    let mut tensors = Vec::new();
    while let Some(tensor) = Raw::new(next) {
        tensors.push(tensor);
        // SAFETY: context and tensor are alive.
        next = unsafe { sys::ggml_get_next_tensor(context.as_ptr(), tensor.as_ptr()) };
    }
    tensors
}
