//! The call of ggml's backward, in a context that it cannot exhaust.

use std::collections::{HashMap, HashSet};
use std::ptr::null_mut;

use ggml_sys as sys;

use super::{Raw, check};
use crate::error::{At, Call, Result};
use crate::graph::Context;
use crate::guard;

/// No rule, ours in `ggml-backward.c` or ggml's own, makes more tensors than this for one node, those that add its result to another
/// gradient included.
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
/// `forward` is everything that the loss depends on, in the order of creation; `needed` are those that need a gradient. All was
/// checked, so that ggml has nothing to refuse.
///
/// # Errors
/// [`Error::Alloc`](crate::Error::Alloc); [`Error::Param`](crate::Error::Param) for more tensors than ggml counts; [`Error::NotDifferentiable`](crate::Error::NotDifferentiable) when it goes on to a node that
/// was not checked; [`Error::Internal`](crate::Error::Internal) when it refuses after all.
pub(super) fn backward(
    call: Call,
    forward: &[Raw],
    loss: Raw,
    needed: &HashSet<Raw>,
) -> Result<Made> {
    let bound = MAX_TENSORS.saturating_mul(needed.len()).saturating_add(1);
    let size = bound.saturating_add(forward.len());
    // ggml counts nodes in an `int` and doubles the count for its hash table.
    if size > (i32::MAX / 4) as usize {
        let detail = format!(
            "{} nodes to differentiate are more than ggml counts",
            needed.len()
        );
        return Err(call.param(detail));
    }
    // SAFETY: a constant of ggml's, without arguments.
    let overhead = unsafe { sys::ggml_tensor_overhead() };
    let context = Context::new(bound.saturating_mul(overhead))?;
    let scratch = scratch(size)?;
    // SAFETY: the loss is alive, one element of F32, and the context has room for one more than the bound.
    let one = guard::call("ggml_fill", || unsafe {
        sys::ggml_fill(context.as_ptr(), loss.as_ptr(), 1.0)
    })?;
    let given = Raw::new(one).map(|one| (loss, one)).into_iter().collect();
    let graph = {
        let _loss = Loss::mark(loss);
        expand(&context, &scratch, forward, &given, size)?
    };
    Ok(Made {
        tensors: tensors(&context),
        gradients: gradients(call.at, graph, forward, needed)?,
        contexts: vec![context],
    })
}

/// Room for a graph of so many nodes, which is needed during a call alone.
pub(super) fn scratch(size: usize) -> Result<Context> {
    // SAFETY: a function of its arguments alone.
    let bytes = guard::call("ggml_graph_overhead_custom", || unsafe {
        sys::ggml_graph_overhead_custom(size, true)
    })?;
    Context::new(bytes)
}

/// Flags a tensor as a loss as long as it lives, so that a later backward of another one does not find two.
pub(super) struct Loss(Raw);

impl Loss {
    pub fn mark(loss: Raw) -> Self {
        // SAFETY: the builder keeps its tensors alive. The setter asserts what was checked, one element of F32.
        unsafe { (*loss.as_ptr()).flags |= sys::GGML_TENSOR_FLAG_LOSS };
        Self(loss)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (*self.0.as_ptr()).flags &= !sys::GGML_TENSOR_FLAG_LOSS };
    }
}

/// Calls ggml's backward of a graph in `scratch`. `given` are gradients that are there before.
pub(super) fn expand(
    context: &Context,
    scratch: &Context,
    forward: &[Raw],
    given: &HashMap<Raw, Raw>,
    size: usize,
) -> Result<*mut sys::ggml_cgraph> {
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
    // SAFETY: the graph is alive.
    let nodes = usize::try_from(unsafe { sys::ggml_graph_n_nodes(graph) }).unwrap_or(0);
    let mut accumulators = vec![null_mut(); nodes];
    for (i, accumulator) in accumulators.iter_mut().enumerate() {
        // SAFETY: the index is below the number of nodes.
        let node = Raw::new(unsafe { sys::ggml_graph_node(graph, i as i32) });
        if let Some(gradient) = node.and_then(|node| given.get(&node)) {
            *accumulator = gradient.as_ptr();
        }
    }
    // SAFETY: graph, context and tensors are alive; there is an accumulator, or null, for every node.
    guard::call("ggml_build_backward_expand", || unsafe {
        sys::ggml_build_backward_expand(context.as_ptr(), graph, accumulators.as_mut_ptr());
    })?;
    Ok(graph)
}

/// The gradients of the marked tensors among `forward`, from a graph whose memory is still there.
fn gradients(
    at: At,
    graph: *mut sys::ggml_cgraph,
    forward: &[Raw],
    needed: &HashSet<Raw>,
) -> Result<HashMap<Raw, Raw>> {
    let mut gradients = HashMap::new();
    for &tensor in forward {
        // SAFETY: the builder keeps its tensors alive.
        let marked = unsafe { tensor.as_ref() }.flags & sys::GGML_TENSOR_FLAG_PARAM != 0;
        // SAFETY: graph and tensor are alive.
        let gradient = unsafe { sys::ggml_graph_get_grad(graph, tensor.as_ptr()) };
        let Some(gradient) = Raw::new(gradient) else {
            continue;
        };
        if !needed.contains(&tensor) {
            return Err(check::refuse(at, tensor, "its gradient was not checked"));
        }
        if marked {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, GluOp, RowIdsOptions, SoftMax, Tensor};
    use crate::{DType, Graph};

    type Op = for<'g> fn(Builder<'g>, Tensor<'g>) -> Result<Tensor<'g>>;

    /// The ops whose rules make the most tensors, used twice so that gradients are added, on permuted gradients of four dimensions.
    const LARGEST: [(&str, Op); 8] = [
        ("a gated unit", |_, a| a.glu(GluOp::GegluErf)),
        ("group norm", |_, a| a.group_norm(2, 1e-5)),
        ("hardswish", |_, a| a.hardswish()),
        ("a repeated divisor", |g, a| {
            let (b, _) = g.input("b", DType::F32, [2, 3, 2, 1])?;
            a.div(b.set_param()?)
        }),
        ("softmax with sinks", |g, a| {
            let (sinks, _) = g.input("sinks", DType::F32, [4])?;
            a.soft_max_ext(SoftMax {
                sinks: Some(sinks.set_param()?),
                ..SoftMax::default()
            })
        }),
        ("a grouped product", |_, a| {
            let row = a.view([4, 6, 2, 1], a.strides()[1..].try_into().unwrap(), 0)?;
            row.cont()?.mul_mat(a)
        }),
        ("experts", |g, a| {
            let (experts, _) = g.input("experts", DType::F32, [4, 3, 4])?;
            let (ids, _) = g.expert_ids("ids", 3, 6, 4)?;
            let a = a.view([4, 1, 6, 1], [16, 16, 96], 0)?.cont()?;
            experts.set_param()?.mul_mat_id(a, ids)
        }),
        ("rows that are written", |g, a| {
            let ids = g
                .row_ids_with("ids", [2], RowIdsOptions::new(6).distinct())?
                .0;
            let (to, _) = g.input("to", DType::F32, [4, 6, 4, 2])?;
            let rows = a.view([4, 2, 4, 2], a.strides()[1..].try_into().unwrap(), 0)?;
            to.set_param()?.scale(2.0)?.set_rows(rows.cont()?, ids)
        }),
    ];

    #[test]
    fn no_rule_makes_more_than_the_bound() {
        for (what, op) in LARGEST {
            Graph::build(|g| {
                let (x, _) = g.input("x", DType::F32, [4, 6, 4, 2])?;
                let x = x.set_param()?;
                // Before the op's own nodes, so that they alone are measured.
                let forward = |uses: usize| -> Result<usize> {
                    let mut loss = x.sum()?;
                    for _ in 0..uses {
                        loss = loss.add(op(g, x)?.permute([1, 0, 2, 3])?.cont()?.sum()?)?;
                    }
                    let wanted = crate::graph::builder::reachable([loss.ptr()].iter());
                    let all = g.core().tensors();
                    let forward: Vec<Raw> =
                        all.into_iter().filter(|t| wanted.contains(t)).collect();
                    let call = Call::new("backward");
                    let needed = check::differentiable(call, &forward, loss.ptr())?;
                    Ok(backward(call, &forward, loss.ptr(), &needed)?.tensors.len())
                };
                let (one, two) = (forward(1)?, forward(2)?);
                // One more use: the op's nodes, and those of permute, cont and sums.
                let made = two - one;
                println!("{what}: {made}");
                assert!((16..=MAX_TENSORS).contains(&made), "{what}: {made}");
                g.output("x", x)
            })
            .unwrap();
        }
    }
}
