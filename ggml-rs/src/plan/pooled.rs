//! Pooled memory: ggml's graph allocator, which places tensors over ones that are no longer needed.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::ptr::{NonNull, null};

use ggml_sys as sys;

use super::buffer;
use super::partition::Partition;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::guard;

/// The allocator, which owns the buffers.
pub(super) struct Pooled {
    allocator: NonNull<sys::ggml_gallocr>,
    devices: usize,
}

impl Pooled {
    /// An allocator without memory.
    ///
    /// # Errors
    /// [`Error::Alloc`] for a tensor that is beyond what its device has.
    pub fn new(partition: &Partition) -> Result<Self> {
        check_tensors(partition)?;
        let devices = partition.devices.iter();
        let mut kinds: Vec<_> = devices.map(|device| device.buffer_type()).collect();
        // SAFETY: the buffer types live as long as the devices; there are as many as is said.
        let allocator = guard::call("ggml_gallocr_new_n", || unsafe {
            sys::ggml_gallocr_new_n(kinds.as_mut_ptr(), kinds.len() as c_int)
        })?;
        let allocator = NonNull::new(allocator).ok_or_else(|| buffer::refused(WHAT, 0))?;
        Ok(Self {
            allocator,
            devices: kinds.len(),
        })
    }

    /// Allocates the graph. Parameters have their memory already.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn allocate(&self, graph: &Graph, partition: &Partition) -> Result<()> {
        let ids = Ids::of(partition);
        let (allocator, cgraph) = (self.allocator.as_ptr(), partition.cgraph.as_ptr());
        // Reserves even though the memory was measured: measuring leaves the allocator with a plan and without memory.
        // SAFETY: allocator and graph are alive, there is an id for each node and leaf, and no tensor is allocated yet but
        // parameters, which the allocator leaves where they are.
        let done = guard::call("ggml_gallocr_alloc_graph", || unsafe {
            sys::ggml_gallocr_reserve_n(allocator, cgraph, ids.nodes(), ids.leafs())
                && sys::ggml_gallocr_alloc_graph(allocator, cgraph)
        })?;
        if !done {
            return Err(buffer::refused(WHAT, 0));
        }
        poison(graph, partition);
        Ok(())
    }

    /// Bytes by device that [`Pooled::allocate`] asks for, with memory that is used again counted once.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn measure(&self, partition: &Partition) -> Result<Vec<usize>> {
        let ids = Ids::of(partition);
        let mut bytes = vec![0; self.devices];
        // SAFETY: allocator and graph are alive; there is an id for each node and leaf, and room for each size.
        guard::call("ggml_gallocr_reserve_n_size", || unsafe {
            sys::ggml_gallocr_reserve_n_size(
                self.allocator.as_ptr(),
                partition.cgraph.as_ptr(),
                ids.nodes(),
                ids.leafs(),
                bytes.as_mut_ptr(),
            );
        })?;
        // Devices that share a buffer type share the buffer, and ggml tells its size for each.
        let kinds: Vec<_> = partition
            .devices
            .iter()
            .map(|device| device.buffer_type())
            .collect();
        for i in 1..bytes.len() {
            if kinds[..i].contains(&kinds[i]) {
                bytes[i] = 0;
            }
        }
        Ok(bytes)
    }

    /// Bytes by device.
    pub fn allocated(&self) -> Vec<usize> {
        // SAFETY: the allocator is alive, and made for as many devices.
        let bytes = |device| unsafe {
            sys::ggml_gallocr_get_buffer_size(self.allocator.as_ptr(), device as c_int)
        };
        (0..self.devices).map(bytes).collect()
    }
}

/// What errors say the memory was for.
const WHAT: &str = "a graph";

impl Drop for Pooled {
    fn drop(&mut self) {
        // SAFETY: the allocator is freed once, with its buffers; the plan's tensors are not used again.
        unsafe { sys::ggml_gallocr_free(self.allocator.as_ptr()) };
    }
}

/// The device of each node and leaf in a cgraph's order. Empty where there is one device.
#[derive(Default)]
struct Ids {
    nodes: Vec<c_int>,
    leafs: Vec<c_int>,
}

impl Ids {
    fn of(partition: &Partition) -> Self {
        if partition.devices.len() == 1 {
            return Self::default();
        }
        let tensors = partition.tensors.iter();
        let homes: HashMap<_, _> = tensors
            .clone()
            .zip(partition.homes.iter().map(|&home| home as c_int))
            .collect();
        let cgraph = partition.cgraph.as_ptr();
        // SAFETY: the cgraph is alive, and the index below its count.
        let node = |i| NonNull::new(unsafe { sys::ggml_graph_node(cgraph, i) });
        // SAFETY: as above.
        let count = unsafe { sys::ggml_graph_n_nodes(cgraph) };
        let nodes = (0..count)
            .map(|i| node(i).map_or(0, |node| homes[&node]))
            .collect();
        // ggml's leafs: inputs that are not marked as trainable, in the order in which they were added.
        // SAFETY: the graph keeps its tensors alive.
        let is_leaf = |tensor: &&NonNull<sys::ggml_tensor>| unsafe {
            let tensor = tensor.as_ref();
            tensor.op == sys::GGML_OP_NONE && tensor.flags & sys::GGML_TENSOR_FLAG_PARAM == 0
        };
        let leafs = tensors
            .filter(is_leaf)
            .map(|tensor| homes[tensor])
            .collect();
        Self { nodes, leafs }
    }

    fn nodes(&self) -> *const c_int {
        pointer(&self.nodes)
    }

    fn leafs(&self) -> *const c_int {
        pointer(&self.leafs)
    }
}

/// ggml takes no ids as one device.
fn pointer(ids: &[c_int]) -> *const c_int {
    if ids.is_empty() { null() } else { ids.as_ptr() }
}

/// Checks each tensor against its device's limits, and that their sum does not overflow ggml's arithmetic.
fn check_tensors(partition: &Partition) -> Result<()> {
    let mut sum = 0_usize;
    for (&tensor, &home) in partition.tensors.iter().zip(&partition.homes) {
        let device = partition.devices[home];
        let kind = device.buffer_type();
        // SAFETY: the graph keeps its tensors alive.
        let bytes = unsafe { buffer::alloc_size(kind, tensor)? };
        buffer::check_size(device, kind, bytes, "a tensor")?;
        sum = sum.saturating_add(bytes);
    }
    // Padding included, ggml's sums stay below twice this.
    if sum <= isize::MAX as usize / 2 {
        return Ok(());
    }
    let detail = "the sum of the tensors' sizes overflows".to_owned();
    Err(Error::Alloc {
        what: WHAT.to_owned(),
        bytes: usize::MAX,
        detail,
    })
}

/// Fills every buffer that the allocator made, and none of a parameter's.
fn poison(graph: &Graph, partition: &Partition) {
    // SAFETY: the graph keeps its tensors alive, and the allocator has placed them.
    let buffer =
        |tensor: NonNull<sys::ggml_tensor>| NonNull::new(unsafe { tensor.as_ref() }.buffer);
    let params: HashSet<_> = graph
        .params()
        .iter()
        .filter_map(|leaf| buffer(leaf.tensor))
        .collect();
    let all: HashSet<_> = partition
        .tensors
        .iter()
        .filter_map(|&tensor| buffer(tensor))
        .collect();
    for &buffer in all.difference(&params) {
        buffer::poison(buffer);
    }
}
