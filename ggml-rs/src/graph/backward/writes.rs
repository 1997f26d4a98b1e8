//! Writes in place, which could change what a backward reads.
//!
//! Nodes run in the order of creation, and everything before a backward runs before it. So a value that a differentiated node read
//! is still there when the backward reads it, unless a later node wrote to that memory; and it is the value of the tensor through
//! which it was read, unless an earlier node wrote to the memory through another one, whose gradient would be lost.

use std::collections::HashMap;

use ggml_sys as sys;

use super::{Raw, check};
use crate::error::{At, Result};
use crate::graph::node;

/// Whether a node writes to the memory of another tensor.
pub(super) fn writes(tensor: Raw) -> bool {
    // SAFETY: the builder keeps its tensors alive.
    unsafe { !tensor.as_ref().view_src.is_null() && !node::is_empty(tensor) }
}

/// Whether a node's result overwrites an operand that it computes from: ggml's in-place ops, which have no backward.
pub(super) fn in_place(tensor: Raw) -> bool {
    // SAFETY: the builder keeps its tensors alive.
    let op = unsafe { tensor.as_ref() }.op;
    writes(tensor) && !matches!(op, sys::GGML_OP_CPY | sys::GGML_OP_SET_ROWS)
}

/// Refuses a backward of which a write may have changed a value. `all` are the builder's tensors in the order of creation,
/// `nodes` those that the backward differentiates or computes again.
///
/// # Errors
/// [`Error::NotDifferentiable`](crate::Error::NotDifferentiable) naming the write.
pub(super) fn check(at: At, all: &[Raw], nodes: impl Iterator<Item = Raw>) -> Result<()> {
    let index: HashMap<Raw, usize> = all.iter().copied().zip(0..).collect();
    let mut written: HashMap<Raw, Vec<usize>> = HashMap::new();
    for (i, &tensor) in all.iter().enumerate() {
        // SAFETY: the builder keeps its tensors alive.
        for base in unsafe { node::written(tensor) } {
            written.entry(base).or_default().push(i);
        }
    }
    if written.is_empty() {
        return Ok(());
    }
    let place = |tensor: Raw| index.get(&tensor).copied().unwrap_or(0);
    for node in nodes.filter(|&node| !check::is_flat(node)) {
        let result = check::reads_result(node).then_some(node);
        for read in reads(node).chain(result) {
            // SAFETY: as above.
            let base = unsafe { node::base(read) };
            let writes = written.get(&base).into_iter().flatten();
            for &write in writes.filter(|&&write| all[write] != node) {
                unchanged(at, read, (node, place(node)), (all[write], write))?;
            }
        }
    }
    Ok(())
}

/// Checks one write to the memory of what a node reads; both come with their places in the order of creation.
fn unchanged(
    at: At,
    read: Raw,
    (node, place): (Raw, usize),
    (write, written_at): (Raw, usize),
) -> Result<()> {
    if written_at > place {
        return Err(check::refuse(
            at,
            write,
            "it writes, before the backward, to what the backward reads again",
        ));
    }
    if read != node && !descends(read, write) {
        return Err(check::refuse(
            at,
            write,
            "it writes to memory that is read through another tensor, so its gradient would be lost: go on from its result",
        ));
    }
    Ok(())
}

/// What a node reads. What cpy writes to is not read.
fn reads(node: Raw) -> impl Iterator<Item = Raw> {
    // SAFETY: the builder keeps its tensors alive.
    let raw = unsafe { node.as_ref() };
    let copies = raw.op == sys::GGML_OP_CPY;
    raw.src
        .iter()
        .enumerate()
        .filter(move |&(place, _)| !(copies && place == 1))
        .filter_map(|(_, &source)| Raw::new(source))
}

/// Whether `tensor` is the result of `write`, or a view of it.
fn descends(tensor: Raw, write: Raw) -> bool {
    let mut at = tensor;
    loop {
        if at == write {
            return true;
        }
        // SAFETY: the builder keeps its tensors alive.
        let raw = unsafe { at.as_ref() };
        // Writes go on from what they wrote to: set_rows through operand 2, the others through what they are a view of.
        let place = match raw.op {
            sys::GGML_OP_SET_ROWS => 2,
            sys::GGML_OP_CPY => 1,
            _ => 0,
        };
        match Raw::new(raw.src[place]) {
            Some(source) if !raw.view_src.is_null() && source != at => at = source,
            _ => return false,
        }
    }
}
