//! Pooled memory: ggml's graph allocator, which places tensors over ones that are no longer needed.

use std::collections::HashSet;
use std::ptr::NonNull;

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
        let kind = backend.buffer_type();
        let bytes = check_sizes(graph, backend)?;
        // SAFETY: the buffer type lives as long as the device.
        let allocator = guard::call("ggml_gallocr_new", || unsafe {
            sys::ggml_gallocr_new(kind)
        })?;
        let allocator =
            NonNull::new(allocator).ok_or_else(|| buffer::refused("a graph's allocator", 0))?;
        let pooled = Self(allocator);
        // SAFETY: allocator and graph are alive; no tensor is allocated yet.
        let done = guard::call("ggml_gallocr_alloc_graph", || unsafe {
            sys::ggml_gallocr_alloc_graph(allocator.as_ptr(), graph.cgraph().as_ptr())
        })?;
        if !done {
            return Err(buffer::refused("a graph", bytes));
        }
        poison(graph);
        Ok(pooled)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // SAFETY: the allocator is freed once, with its buffers; the plan's tensors are not used again.
        unsafe { sys::ggml_gallocr_free(self.0.as_ptr()) };
    }
}

/// Checks each tensor against the device's limits, and that their sum does not overflow ggml's arithmetic.
/// Returns the sum: an upper bound of what is needed, since memory is reused.
fn check_sizes(graph: &Graph, backend: &Backend) -> Result<usize> {
    let kind = backend.buffer_type();
    let mut sum = 0_usize;
    for &tensor in graph.tensors() {
        // SAFETY: the graph keeps its tensors alive.
        let bytes = unsafe { buffer::alloc_size(kind, tensor)? };
        buffer::check_size(backend.device(), kind, bytes, "a tensor")?;
        sum = sum.saturating_add(bytes);
    }
    if sum > isize::MAX as usize {
        let detail = "the tensors' sizes overflow".to_owned();
        return Err(Error::Alloc {
            what: "a graph".into(),
            bytes: usize::MAX,
            detail,
        });
    }
    Ok(sum)
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
