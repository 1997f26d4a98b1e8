//! A graph in splits: runs of nodes on one device, with copies of what they read from others.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::assign::{Index, assign, index};
use crate::backend::Fallback;
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::graph::{Arena, Context, Graph, expand, node};
use crate::guard;

type Tensor = NonNull<sys::ggml_tensor>;
type Cgraph = NonNull<sys::ggml_cgraph>;

/// How many nodes run between two looks at a switch, on devices that do not look themselves.
const PART: usize = 32;

/// Where each tensor is, and what runs when.
pub(super) struct Partition {
    pub devices: Vec<Device>,
    /// Copies, then the graph's own tensors.
    pub tensors: Vec<Tensor>,
    /// The device of each, as an index into `devices`.
    pub homes: Vec<usize>,
    /// All of them, for the allocator.
    pub cgraph: Cgraph,
    pub splits: Vec<Split>,
    copies: usize,
    changes: Changes,
    /// All nodes so many times over.
    repeated: Option<(usize, Context, Cgraph)>,
    // Hold copies and cgraphs.
    contexts: Vec<Context>,
}

/// Nodes that run one after the other on one device.
pub(super) struct Split {
    pub device: usize,
    /// What is copied to the device first: from, to.
    pub copies: Vec<(Tensor, Tensor)>,
    pub cgraph: Cgraph,
    nodes: Vec<Tensor>,
    /// The same nodes in smaller graphs, made when a run can be cancelled.
    parts: Vec<Cgraph>,
}

impl Partition {
    /// Divides a graph. Its nodes read the copies from then on, until [`Partition::undo`].
    ///
    /// # Errors
    /// As [`assign`]; [`Error::Alloc`].
    pub fn new(graph: &Graph, devices: Vec<Device>, fallback: Fallback) -> Result<Self> {
        let homes = assign(graph, &devices, fallback)?;
        if homes.iter().all(|&home| home == 0) {
            return Ok(Self::whole(graph, devices, homes));
        }
        Self::divided(graph, devices, &homes, Reads::WhatItsDeviceTakes)
    }

    /// Divides a graph whose tensors have their homes.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    fn divided(graph: &Graph, devices: Vec<Device>, homes: &[usize], reads: Reads) -> Result<Self> {
        Draft::new(graph, &devices, homes, reads).finish(devices.clone(), homes)
    }

    /// Everything on the first device.
    fn whole(graph: &Graph, devices: Vec<Device>, homes: Vec<usize>) -> Self {
        let split = Split {
            device: 0,
            copies: Vec::new(),
            cgraph: graph.cgraph(),
            nodes: Vec::new(),
            parts: Vec::new(),
        };
        Self {
            devices,
            tensors: graph.tensors().to_vec(),
            homes,
            cgraph: graph.cgraph(),
            splits: vec![split],
            copies: 0,
            changes: Changes::default(),
            repeated: None,
            contexts: Vec::new(),
        }
    }

    /// Makes the graph what it was.
    pub fn undo(mut self) {
        self.changes.undo();
    }

    /// The device of each of the graph's own tensors.
    pub fn home_of_graph(&self) -> impl Iterator<Item = (Tensor, Device)> + '_ {
        let own = self.tensors.iter().zip(&self.homes).skip(self.copies);
        own.map(|(&tensor, &home)| (tensor, self.devices[home]))
    }

    /// How many tensors are copied from one device to another in a run.
    pub fn copies_in_a_run(&self) -> usize {
        self.splits.iter().map(|split| split.copies.len()).sum()
    }

    /// The graphs of a split, small ones if a run is to stop between them.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn graphs(&mut self, split: usize, cancellable: bool) -> Result<Vec<Cgraph>> {
        let device = self.devices[self.splits[split].device];
        // The CPU looks at the switch between nodes.
        if !cancellable || device.kind() == DeviceKind::Cpu {
            return Ok(vec![self.splits[split].cgraph]);
        }
        self.parts(split)
    }

    /// Whether a graph has room for all nodes so many times over.
    pub fn can_repeat(&self, times: usize) -> bool {
        const MOST_NODES: usize = 1 << 20;
        let nodes = self.tensors.len().checked_mul(times);
        nodes.is_some_and(|nodes| nodes <= MOST_NODES)
    }

    /// All nodes, in order, so many times over. Made anew when the number changes.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn repeated(&mut self, times: usize) -> Result<Cgraph> {
        match &self.repeated {
            Some((made, _, cgraph)) if *made == times => Ok(*cgraph),
            _ => {
                let (context, cgraph) = flat(&computed(&self.tensors).repeat(times))?;
                self.repeated = Some((times, context, cgraph));
                Ok(cgraph)
            }
        }
    }

    fn parts(&mut self, split: usize) -> Result<Vec<Cgraph>> {
        if self.splits[split].parts.is_empty() {
            let nodes = match self.splits[split].nodes.as_slice() {
                [] => computed(&self.tensors),
                nodes => nodes.to_vec(),
            };
            for part in nodes.chunks(PART) {
                let (context, cgraph) = flat(part)?;
                self.contexts.push(context);
                self.splits[split].parts.push(cgraph);
            }
        }
        Ok(self.splits[split].parts.clone())
    }
}

impl Split {
    /// Brings what the split reads from other devices.
    ///
    /// # Safety
    /// Both tensors of each copy must be allocated, and nothing may write the first meanwhile.
    pub unsafe fn copy_in(&self) {
        for (from, to) in &self.copies {
            // SAFETY: the caller vouches for the tensors; `to` was given the layout of `from`.
            unsafe { sys::ggml_backend_tensor_copy(from.as_ptr(), to.as_ptr()) };
        }
    }
}

/// Those that are computed.
fn computed(tensors: &[Tensor]) -> Vec<Tensor> {
    let tensors = tensors.iter().copied();
    // SAFETY: the graph keeps its tensors alive.
    tensors
        .filter(|&tensor| !unsafe { node::is_empty(tensor) })
        .collect()
}

/// A cgraph of these nodes and nothing else, in this order.
///
/// It counts no uses, so backends fuse nothing in it.
fn flat(nodes: &[Tensor]) -> Result<(Context, Cgraph)> {
    // SAFETY: a function of its arguments alone.
    let bytes = guard::call("ggml_graph_overhead_custom", || unsafe {
        sys::ggml_graph_overhead_custom(nodes.len(), false)
    })?;
    let context = Context::new(bytes)?;
    // SAFETY: the context was sized for this graph, which has room for all of the nodes.
    let cgraph = guard::call("ggml_graph_add_node", || unsafe {
        let cgraph = sys::ggml_new_graph_custom(context.as_ptr(), nodes.len(), false);
        for node in nodes {
            sys::ggml_graph_add_node(cgraph, node.as_ptr());
        }
        cgraph
    })?;
    let cgraph = NonNull::new(cgraph).ok_or_else(|| Error::Internal {
        step: "ggml_new_graph_custom",
        message: "no graph was made".into(),
    })?;
    Ok((context, cgraph))
}

/// What was changed in the graph's tensors.
#[derive(Default)]
struct Changes {
    /// Node, operand, what it was.
    sources: Vec<(Tensor, usize, *mut sys::ggml_tensor)>,
    flags: Vec<(Tensor, i32)>,
}

impl Changes {
    fn set_source(&mut self, mut node: Tensor, slot: usize, source: Tensor) {
        // SAFETY: the graph keeps its tensors alive, and a graph under planning is used by one thread.
        let place = unsafe { &mut node.as_mut().src[slot] };
        self.sources.push((node, slot, *place));
        *place = source.as_ptr();
    }

    /// Keeps the allocator from using the memory of `tensor` for another one.
    fn keep(&mut self, tensor: Tensor) {
        // SAFETY: as above.
        unsafe {
            let mut base = node::base(tensor);
            self.flags.push((base, base.as_ref().flags));
            base.as_mut().flags |= sys::GGML_TENSOR_FLAG_OUTPUT;
        }
    }

    fn undo(&mut self) {
        for (mut node, slot, source) in self.sources.drain(..) {
            // SAFETY: as above.
            unsafe { node.as_mut() }.src[slot] = source;
        }
        // The first entry of a tensor has its true flags.
        for (mut tensor, flags) in self.flags.drain(..).rev() {
            // SAFETY: as above.
            unsafe { tensor.as_mut() }.flags = flags;
        }
    }
}

/// A copy of a tensor on another device.
struct Copied {
    tensor: Tensor,
    /// The split that last brought it up to date.
    fresh: usize,
}

/// What a node reads where it is, without a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    WhatItsDeviceTakes,
    /// As if no device took another's memory: one device can then stand for several.
    #[cfg(test)]
    OnlyItsOwn,
}

/// A partition in the making.
struct Draft<'a> {
    graph: &'a Graph,
    devices: &'a [Device],
    homes: &'a [usize],
    reads: Reads,
    index: Index,
    arena: Arena,
    copies: HashMap<(Tensor, usize), Copied>,
    /// In the order in which they were made, with their devices.
    copied: Vec<(Tensor, usize)>,
    /// The split that last wrote the memory of a tensor.
    written: HashMap<Tensor, usize>,
    splits: Vec<DraftSplit>,
    /// Node, operand, copy.
    edits: Vec<(Tensor, usize, Tensor)>,
}

struct DraftSplit {
    device: usize,
    copies: Vec<(Tensor, Tensor)>,
    nodes: Vec<Tensor>,
}

impl<'a> Draft<'a> {
    fn new(graph: &'a Graph, devices: &'a [Device], homes: &'a [usize], reads: Reads) -> Self {
        Self {
            graph,
            devices,
            homes,
            reads,
            index: index(graph),
            arena: Arena::default(),
            copies: HashMap::new(),
            copied: Vec::new(),
            written: HashMap::new(),
            splits: Vec::new(),
            edits: Vec::new(),
        }
    }

    fn finish(mut self, devices: Vec<Device>, homes: &[usize]) -> Result<Partition> {
        for node in computed(self.graph.tensors()) {
            self.add(node)?;
        }
        let mut contexts = self.arena.into_contexts();
        let mut splits = Vec::with_capacity(self.splits.len());
        for split in self.splits {
            let (context, cgraph) = flat(&split.nodes)?;
            contexts.push(context);
            splits.push(Split {
                device: split.device,
                copies: split.copies,
                cgraph,
                nodes: split.nodes,
                parts: Vec::new(),
            });
        }
        let mut changes = Changes::default();
        for &(source, _) in self.copies.keys() {
            changes.keep(source);
        }
        for (node, slot, copy) in self.edits {
            changes.set_source(node, slot, copy);
        }
        let (copied, places): (Vec<_>, Vec<_>) = self.copied.into_iter().unzip();
        let tensors = [&copied, self.graph.tensors()].concat();
        match expand(&tensors) {
            Ok((context, cgraph)) => {
                contexts.push(context);
                Ok(Partition {
                    devices,
                    homes: [&places, homes].concat(),
                    copies: copied.len(),
                    tensors,
                    cgraph,
                    splits,
                    changes,
                    repeated: None,
                    contexts,
                })
            }
            Err(error) => {
                changes.undo();
                Err(error)
            }
        }
    }

    /// Appends a node to the split of its device.
    fn add(&mut self, node: Tensor) -> Result<()> {
        let device = self.homes[self.index[&node]];
        if self
            .splits
            .last()
            .is_none_or(|split| split.device != device)
        {
            self.splits.push(DraftSplit {
                device,
                copies: Vec::new(),
                nodes: Vec::new(),
            });
        }
        let split = self.splits.len() - 1;
        // SAFETY: the graph keeps its tensors alive.
        let sources = unsafe { node.as_ref() }.src;
        for (slot, source) in sources.into_iter().enumerate() {
            if let Some(source) = NonNull::new(source).filter(|&source| !self.reads(device, source))
            {
                let copy = self.copy(split, device, source)?;
                self.edits.push((node, slot, copy));
            }
        }
        self.splits[split].nodes.push(node);
        // SAFETY: as above.
        let (base, written) = unsafe { (node::base(node), node::written(node)) };
        for memory in written.into_iter().chain([base]) {
            self.written.insert(memory, split);
        }
        Ok(())
    }

    /// Whether the device can read the tensor where it is.
    fn reads(&self, device: usize, source: Tensor) -> bool {
        let home = self.homes[self.index[&source]];
        if self.reads != Reads::WhatItsDeviceTakes {
            return home == device;
        }
        let kind = match self.graph.param_of(source) {
            Some(leaf) => leaf.param.storage().buffer_type(),
            None if home == device => return true,
            None => self.devices[home].buffer_type(),
        };
        self.devices[device].takes(kind)
    }

    /// The copy of a tensor on a device, brought up to date before the split if anything wrote the tensor since.
    fn copy(&mut self, split: usize, device: usize, source: Tensor) -> Result<Tensor> {
        // SAFETY: the graph keeps its tensors alive.
        let written = self.written.get(&unsafe { node::base(source) }).copied();
        let (copy, fresh) = match self.copies.get_mut(&(source, device)) {
            // Nothing writes another device's memory within a split.
            Some(copied) => {
                let fresh = written.is_none_or(|written| written < copied.fresh);
                if !fresh {
                    copied.fresh = split;
                }
                (copied.tensor, fresh)
            }
            None => {
                let tensor = like(&mut self.arena, source)?;
                let copied = Copied {
                    tensor,
                    fresh: split,
                };
                self.copies.insert((source, device), copied);
                self.copied.push((tensor, device));
                (tensor, false)
            }
        };
        if !fresh {
            self.splits[split].copies.push((source, copy));
        }
        Ok(copy)
    }
}

/// A tensor of the same type, shape and strides, which keeps its memory throughout a run.
fn like(arena: &mut Arena, source: Tensor) -> Result<Tensor> {
    let context = arena.reserve_tensor()?;
    // SAFETY: the source is alive; the context has room.
    let copy = guard::call("ggml_new_tensor", || unsafe {
        let source = source.as_ref();
        sys::ggml_new_tensor(context, source.type_, 4, source.ne.as_ptr())
    })?;
    let mut copy = NonNull::new(copy).ok_or_else(|| Error::Internal {
        step: "ggml_new_tensor",
        message: "no tensor was made".into(),
    })?;
    // SAFETY: both are alive; the copy is new, and nobody else has it. The name is a C string that fits.
    unsafe {
        copy.as_mut().nb = source.as_ref().nb;
        sys::ggml_set_name(copy.as_ptr(), c"a copy on another device".as_ptr());
        sys::ggml_set_input(copy.as_ptr());
        sys::ggml_set_output(copy.as_ptr());
    }
    Ok(copy)
}
