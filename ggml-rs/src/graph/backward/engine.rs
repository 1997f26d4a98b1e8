//! The walk from the loss back: each node's gradient gives those of its sources, through the builder that made them.

use std::collections::{HashMap, HashSet};

use ggml_sys as sys;

use super::grad::{Grad, Part, SOURCES};
use super::{Raw, gradients};
use crate::error::{Error, Result};
use crate::graph::builder::{NodeNames, is_leaf, name_cut};
use crate::graph::node::{self, Node};
use crate::graph::{Builder, Tensor};

/// What a backward made.
pub(super) struct Made {
    /// The gradients of marked tensors, by these.
    pub gradients: HashMap<Raw, Raw>,
    /// Each gradient that was made or added to, and what it belongs to.
    added: Vec<(Raw, Raw)>,
}

/// Makes the nodes that compute the gradients of `loss`.
///
/// `forward` is everything that the loss depends on, in the order of creation, and `needed` those that need a gradient. All was
/// checked, so that no op refuses.
///
/// # Errors
/// [`Error::Alloc`]; [`Error::Internal`] when a gradient asks for what was not checked.
pub(super) fn run<'g>(
    builder: Builder<'g>,
    forward: &[Raw],
    loss: Tensor<'g>,
    needed: &HashSet<Raw>,
) -> Result<Made> {
    let mut walk = Walk {
        builder,
        needed,
        gradients: HashMap::from([(loss.ptr(), loss.fill(1.0)?)]),
        added: Vec::new(),
    };
    for &tensor in forward.iter().rev() {
        if let Some(&gradient) = walk.gradients.get(&tensor) {
            walk.step(Tensor::new(tensor, builder)?, gradient)?;
        }
    }
    let marked = forward.iter().filter(|&&tensor| is_marked(tensor));
    let gradients = marked.filter_map(|tensor| Some((*tensor, walk.gradients.get(tensor)?.ptr())));
    Ok(Made {
        gradients: gradients.collect(),
        added: walk.added,
    })
}

/// Names gradients after what they belong to, of which nodes without a name get their numbers for one.
pub(super) fn name(forward: &[Raw], made: &Made) {
    let mut names = NodeNames::new();
    for &tensor in forward {
        // SAFETY: the builder keeps its tensors alive, and no other thread has them yet.
        let tensor = unsafe { &mut *tensor.as_ptr() };
        if !is_leaf(tensor) {
            names.give(tensor);
        }
    }
    for &(gradient, source) in &made.added {
        // SAFETY: the builder keeps its tensors alive.
        let name = unsafe { node::name(source) };
        name_cut(gradient, &format!("grad for {name}"));
    }
}

struct Walk<'g, 'n> {
    builder: Builder<'g>,
    /// What needs a gradient.
    needed: &'n HashSet<Raw>,
    /// The gradients so far, by the tensor that they belong to.
    gradients: HashMap<Raw, Tensor<'g>>,
    /// Each gradient that was made or added to, and what it belongs to.
    added: Vec<(Raw, Raw)>,
}

impl<'g> Walk<'g, '_> {
    /// Gives a node's gradient on to its sources.
    fn step(&mut self, y: Tensor<'g>, gradient: Tensor<'g>) -> Result<()> {
        if y.raw_op() == sys::GGML_OP_NONE {
            return Ok(());
        }
        let gradient = match y.raw_op() {
            sys::GGML_OP_PERMUTE | sys::GGML_OP_TRANSPOSE => gradient,
            _ => gradient.packed()?,
        };
        // SAFETY: the builder keeps its tensors alive.
        let node = unsafe { Node::of(y.ptr()) }?;
        let rule = node.as_ref().and_then(|node| gradients::of(node.op));
        let (Some(node), Some(rule)) = (node, rule) else {
            return Err(unknown(y));
        };
        let mut sources = [None; SOURCES];
        let mut needs = [false; SOURCES];
        for (place, &source) in y.raw_sources()[..SOURCES].iter().enumerate() {
            let Some(source) = Raw::new(source) else {
                continue;
            };
            sources[place] = Some(Tensor::new(source, self.builder)?);
            // A cast names itself as what it writes to.
            needs[place] = source != y.ptr() && self.needed.contains(&source);
        }
        let grad = Grad {
            node,
            y,
            sources,
            needs,
        };
        let parts = rule(&grad, gradient)?.0;
        for (source, part) in sources.into_iter().zip(parts) {
            if let (Some(source), Some(part)) = (source, part) {
                self.add(source, part)?;
            }
        }
        Ok(())
    }

    /// Adds a part to the gradient of a source.
    fn add(&mut self, source: Tensor<'g>, part: Part<'g>) -> Result<()> {
        let before = self.gradients.get(&source.ptr()).copied();
        let sum = match (before, part) {
            (None, Part::Whole(gradient)) => gradient,
            (Some(before), Part::Whole(gradient)) => before.packed()?.add(gradient.packed()?)?,
            (before, Part::Window(gradient, window)) => {
                let rest = match before {
                    Some(before) => before.packed()?,
                    // Not the source times zero, which is NaN for an infinity.
                    None => gradient.zeros(source.shape())?,
                };
                rest.acc(gradient, window.nb, window.offset)?
            }
        };
        self.added.push((sum.ptr(), source.ptr()));
        self.gradients.insert(source.ptr(), sum);
        Ok(())
    }
}

fn is_marked(tensor: Raw) -> bool {
    // SAFETY: the builder keeps its tensors alive.
    unsafe { tensor.as_ref() }.flags & sys::GGML_TENSOR_FLAG_PARAM != 0
}

/// The checks passed a node without a rule.
fn unknown(y: Tensor<'_>) -> Error {
    // SAFETY: the builder keeps its tensors alive.
    let op = unsafe { node::op_name(y.ptr()) };
    Error::Internal {
        step: "backward",
        message: format!("{op} has no gradient"),
    }
}
