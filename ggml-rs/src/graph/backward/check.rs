//! Which nodes a gradient goes through, and whether each of them has a backward: asked before ggml is.

use std::collections::HashSet;

use ggml_sys as sys;

use super::rules::{self, Rule};
use super::{Raw, writes};
use crate::error::{At, Call, Error, NotDifferentiable, Result};
use crate::graph::node::{self, Node, Op};
use crate::layout::Layout;

/// The tensors of `forward` that depend on a marked one: those for which the backward makes nodes.
///
/// `forward` is everything that the loss depends on, in the order of creation.
///
/// # Errors
/// [`Error::NotDifferentiable`] for the last node without a backward; [`Error::Param`] when the loss depends on no marked tensor.
pub(super) fn differentiable(call: Call, forward: &[Raw], loss: Raw) -> Result<HashSet<Raw>> {
    let needed = needed(forward);
    if !needed.contains(&loss) {
        return Err(
            call.param("the loss does not depend on a tensor that is marked with set_param")
        );
    }
    let at = call.at;
    let reached = reached(forward, &needed, loss);
    for &tensor in forward
        .iter()
        .rev()
        .filter(|tensor| needed.contains(tensor))
    {
        if writes::in_place(tensor) {
            return Err(refuse(at, tensor, "an op in place has no backward"));
        }
        if let Some(why) = uncounted(tensor, &needed) {
            return Err(refuse(at, tensor, why));
        }
        if reached.contains(&tensor) {
            check(at, tensor, &needed)?;
        }
    }
    Ok(needed)
}

/// What depends on a marked tensor as ggml counts it.
fn needed(forward: &[Raw]) -> HashSet<Raw> {
    let mut needed = HashSet::new();
    for &tensor in forward {
        // SAFETY: the builder keeps its tensors alive.
        let raw = unsafe { tensor.as_ref() };
        let marked = raw.flags & sys::GGML_TENSOR_FLAG_PARAM != 0;
        if marked || flows(tensor).any(|source| needed.contains(&source)) {
            needed.insert(tensor);
        }
    }
    needed
}

/// What a gradient of the loss reaches.
pub(super) fn reached(forward: &[Raw], needed: &HashSet<Raw>, loss: Raw) -> HashSet<Raw> {
    let mut reached = HashSet::from([loss]);
    for &tensor in forward.iter().rev() {
        if reached.contains(&tensor) {
            reached.extend(flows(tensor).filter(|source| needed.contains(source)));
        }
    }
    reached
}

/// The operands of a tensor through which it may come to need a gradient.
fn flows(tensor: Raw) -> impl Iterator<Item = Raw> {
    // SAFETY: the builder keeps its tensors alive.
    let (raw, op) = unsafe { (tensor.as_ref(), node::op(tensor)) };
    rules::counted(op)
        .filter_map(|place| Raw::new(*raw.src.get(place)?))
        .filter(move |&source| source != tensor)
}

/// Why ggml asserts when it counts a node, whether a gradient reaches that or not. It counts no node of I32.
fn uncounted(tensor: Raw, needed: &HashSet<Raw>) -> Option<String> {
    let types = [
        sys::GGML_TYPE_F32,
        sys::GGML_TYPE_F16,
        sys::GGML_TYPE_BF16,
        sys::GGML_TYPE_I32,
    ];
    // SAFETY: the builder keeps its tensors alive.
    let dtype = |tensor: Raw| unsafe { tensor.as_ref() }.type_;
    if dtype(tensor) == sys::GGML_TYPE_I32 {
        return None;
    }
    let source = flows(tensor)
        .find(|&source| needed.contains(&source) && !types.contains(&dtype(source)))?;
    // SAFETY: as above.
    let layout = unsafe { Layout::of(source.as_ptr()) }.ok()?;
    Some(format!(
        "an operand is {}: gradients go through f32, f16 and bf16",
        layout.dtype
    ))
}

fn check(at: At, tensor: Raw, needed: &HashSet<Raw>) -> Result<()> {
    // SAFETY: the builder keeps its tensors alive.
    let raw = unsafe { tensor.as_ref() };
    if raw.op == sys::GGML_OP_NONE {
        return Ok(());
    }
    // SAFETY: as above.
    let Some(node) = (unsafe { Node::of(tensor) })? else {
        return Err(refuse(at, tensor, "the op is unknown"));
    };
    let needs = |place: usize| {
        let source = raw.src.get(place).and_then(|&source| Raw::new(source));
        source.is_some_and(|source| source != tensor && needed.contains(&source))
    };
    match rules::refusal(tensor, &node, needs) {
        Some(why) => Err(refuse(at, tensor, why)),
        None => Ok(()),
    }
}

/// Whether gradients end at this op.
pub(super) fn is_flat(tensor: Raw) -> bool {
    // SAFETY: the builder keeps its tensors alive.
    unsafe { node::op(tensor) }.is_some_and(|op| rules::rule(op) == Rule::Flat)
}

/// Whether the node calls a closure of the user's.
pub(super) fn is_custom(tensor: Raw) -> bool {
    // SAFETY: the builder keeps its tensors alive.
    let op = unsafe { node::op(tensor) };
    matches!(
        op,
        Some(Op::MapCustom1 | Op::MapCustom2 | Op::MapCustom3 | Op::Custom)
    )
}

/// Whether the backward of a node reads the node's own result.
pub(super) fn reads_result(tensor: Raw) -> bool {
    // SAFETY: the builder keeps its tensors alive.
    unsafe { node::op(tensor) }.is_none_or(rules::reads_result)
}

/// The error of a node without a backward.
pub(super) fn refuse(at: At, tensor: Raw, reason: impl Into<String>) -> Error {
    // SAFETY: the builder keeps its tensors alive.
    let (op, name, node) = unsafe { (node::op_name(tensor), node::name(tensor), Node::of(tensor)) };
    let operands = node.ok().flatten().map(|node| node.operands());
    Error::NotDifferentiable(Box::new(NotDifferentiable {
        op,
        node: name,
        operands: operands.unwrap_or_default(),
        reason: reason.into(),
        at: at.location(),
    }))
}
