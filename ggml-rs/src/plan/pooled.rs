//! Pooled memory: ggml's graph allocator, which places tensors over ones that are no longer needed.

use std::collections::HashSet;
use std::ptr::{NonNull, null};

use ggml_sys as sys;

use super::buffer;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::guard;

/// The allocator, which owns the buffers.
pub(super) struct Pooled(NonNull<sys::ggml_gallocr>);

impl Pooled {
    /// Allocates the graph.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn new(graph: &Graph, backend: &Backend) -> Result<Self> {
        check_tensors(graph, backend)?;
        // SAFETY: the buffer type lives as long as the device.
        let allocator = guard::call("ggml_gallocr_new", || unsafe {
            sys::ggml_gallocr_new(backend.buffer_type())
        })?;
        let allocator = NonNull::new(allocator).ok_or_else(|| buffer::refused(WHAT, 0))?;
        let pooled = Self(allocator);
        let bytes = pooled.measure(graph)?;
        buffer::check_memory(backend.device(), bytes, WHAT)?;
        pooled.allocate(graph, bytes)?;
        poison(graph);
        Ok(pooled)
    }

    /// Bytes that the graph needs, with memory that is used again counted once.
    fn measure(&self, graph: &Graph) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: allocator and graph are alive; no ids mean one buffer type, so one size is written.
        guard::call("ggml_gallocr_reserve_n_size", || unsafe {
            let (allocator, cgraph) = (self.0.as_ptr(), graph.cgraph().as_ptr());
            sys::ggml_gallocr_reserve_n_size(allocator, cgraph, null(), null(), &mut bytes);
        })?;
        Ok(bytes)
    }

    /// Reserves the memory, then places the tensors. Measuring leaves the allocator with a plan and without
    /// memory, a state that only reserving ends.
    fn allocate(&self, graph: &Graph, bytes: usize) -> Result<()> {
        let (allocator, cgraph) = (self.0.as_ptr(), graph.cgraph().as_ptr());
        // SAFETY: allocator and graph are alive, and no tensor is allocated yet.
        let done = guard::call("ggml_gallocr_alloc_graph", || unsafe {
            sys::ggml_gallocr_reserve(allocator, cgraph)
                && sys::ggml_gallocr_alloc_graph(allocator, cgraph)
        })?;
        if done {
            Ok(())
        } else {
            Err(buffer::refused(WHAT, bytes))
        }
    }
}

/// What errors say the memory was for.
const WHAT: &str = "a graph";

impl Drop for Pooled {
    fn drop(&mut self) {
        // SAFETY: the allocator is freed once, with its buffers; the plan's tensors are not used again.
        unsafe { sys::ggml_gallocr_free(self.0.as_ptr()) };
    }
}

/// Checks each tensor against the device's limits, and that their sum does not overflow ggml's arithmetic.
fn check_tensors(graph: &Graph, backend: &Backend) -> Result<()> {
    let kind = backend.buffer_type();
    let mut sum = 0_usize;
    for &tensor in graph.tensors() {
        // SAFETY: the graph keeps its tensors alive.
        let bytes = unsafe { buffer::alloc_size(kind, tensor)? };
        buffer::check_size(backend.device(), kind, bytes, "a tensor")?;
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

/// Fills every buffer that the allocator made.
fn poison(graph: &Graph) {
    // SAFETY: the graph keeps its tensors alive, and the allocator has placed them.
    let buffers = graph
        .tensors()
        .iter()
        .filter_map(|tensor| NonNull::new(unsafe { tensor.as_ref() }.buffer));
    for buffer in buffers.collect::<HashSet<_>>() {
        buffer::poison(buffer);
    }
}
