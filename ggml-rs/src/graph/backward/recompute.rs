//! Checkpoints: nodes of a segment are made again for the backward, so that their first results need not be kept.
//!
//! The nodes of a backward that read an inner tensor of a segment read its copy instead, which is placed before the first of them.
//! Copies read copies, and what the segment began with. What is read outside of the segment is kept and not copied.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::ptr::null_mut;

use ggml_sys as sys;

use super::{Raw, check, writes};
use crate::error::{At, Result};
use crate::graph::builder::Core;

/// Refuses to compute again what writes in place, or calls the user: a second time would not give the same values.
///
/// # Errors
/// [`Error::NotDifferentiable`] for the first such node.
pub(super) fn check<'a>(at: At, mut again: impl Iterator<Item = &'a Raw>) -> Result<()> {
    let once = |tensor: Raw| writes::writes(tensor) || check::is_custom(tensor);
    match again.find(|&&tensor| once(tensor)) {
        Some(&tensor) => Err(check::refuse(
            at,
            tensor,
            "it writes in place or calls a closure, which a checkpoint cannot do again: take it out",
        )),
        None => Ok(()),
    }
}

/// Makes the nodes of `made`, which follow `all` in the builder, read copies of the segments' inner tensors, and places the copies
/// among them.
///
/// # Errors
/// [`Error::Alloc`]; [`Error::Internal`].
pub(super) fn rewire(
    core: &Core,
    all: &[Raw],
    segments: &[Range<usize>],
    made: &[Raw],
) -> Result<()> {
    let inner = inner(all, segments);
    if inner.is_empty() {
        return Ok(());
    }
    let mut copies = Copies {
        core,
        inner,
        by_original: HashMap::new(),
    };
    let mut ordered = Vec::with_capacity(made.len());
    for &tensor in made {
        for source in operands(tensor) {
            copies.make(source, &mut ordered)?;
        }
        copies.redirect(tensor);
        ordered.push(tensor);
    }
    core.reorder(all.len(), ordered);
    Ok(())
}

/// The segments' tensors that nothing outside of their segment reads; inputs are not among them.
fn inner(all: &[Raw], segments: &[Range<usize>]) -> HashSet<Raw> {
    let mut segment_of = HashMap::new();
    for (number, segment) in segments.iter().enumerate() {
        for &tensor in &all[segment.clone()] {
            // SAFETY: the builder keeps its tensors alive.
            if unsafe { tensor.as_ref() }.op != sys::GGML_OP_NONE {
                segment_of.insert(tensor, number);
            }
        }
    }
    let mut inner: HashSet<Raw> = segment_of.keys().copied().collect();
    for &tensor in all {
        for source in operands(tensor) {
            if segment_of.get(&source) != segment_of.get(&tensor) {
                inner.remove(&source);
            }
        }
    }
    inner
}

/// What a tensor reads or looks at, but itself: a cast names itself as where it writes to.
fn operands(tensor: Raw) -> impl Iterator<Item = Raw> {
    // SAFETY: the builder keeps its tensors alive.
    let raw = unsafe { tensor.as_ref() };
    raw.src
        .iter()
        .chain([&raw.view_src])
        .filter_map(|&source| Raw::new(source))
        .filter(move |&source| source != tensor)
}

struct Copies<'c> {
    core: &'c Core,
    inner: HashSet<Raw>,
    by_original: HashMap<Raw, Raw>,
}

impl Copies<'_> {
    /// Makes the copy of an inner tensor and of the inner tensors that it needs, each after its operands. Iterative: a segment
    /// may be deeper than the stack.
    fn make(&mut self, tensor: Raw, ordered: &mut Vec<Raw>) -> Result<()> {
        let mut open = vec![tensor];
        while let Some(&next) = open.last() {
            if !self.inner.contains(&next) || self.by_original.contains_key(&next) {
                open.pop();
                continue;
            }
            let missing: Vec<Raw> = operands(next)
                .filter(|source| {
                    self.inner.contains(source) && !self.by_original.contains_key(source)
                })
                .collect();
            if missing.is_empty() {
                open.pop();
                ordered.push(self.copy(next)?);
            } else {
                open.extend(missing);
            }
        }
        Ok(())
    }

    /// One more tensor with the op, parameters and operands of this one.
    fn copy(&mut self, original: Raw) -> Result<Raw> {
        // SAFETY: the builder keeps its tensors alive.
        let from = unsafe { original.as_ref() };
        // SAFETY: `ne` has four entries that ggml itself wrote.
        let mut copy = self.core.create("ggml_new_tensor", |context| unsafe {
            sys::ggml_new_tensor(context, from.type_, 4, from.ne.as_ptr())
        })?;
        // SAFETY: the copy is new, and nothing else refers to it.
        let to = unsafe { copy.as_mut() };
        to.nb = from.nb;
        to.op = from.op;
        to.op_params = from.op_params;
        to.src = from.src;
        to.view_src = from.view_src;
        to.view_offs = from.view_offs;
        to.name = from.name;
        to.data = null_mut();
        for source in &mut to.src {
            if *source == original.as_ptr() {
                *source = copy.as_ptr();
            }
        }
        self.redirect(copy);
        self.by_original.insert(original, copy);
        Ok(copy)
    }

    /// Makes a tensor read and look at copies where there are some.
    fn redirect(&self, mut tensor: Raw) {
        // SAFETY: the tensor is one that the backward made, or a copy: alive, and not read by anything else now.
        let raw = unsafe { tensor.as_mut() };
        for source in raw.src.iter_mut().chain([&mut raw.view_src]) {
            if let Some(copy) = Raw::new(*source).and_then(|source| self.by_original.get(&source)) {
                *source = copy.as_ptr();
            }
        }
    }
}
