//! What a plan takes, by device.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use ggml_sys as sys;

use super::partition::Partition;
use super::{Placement, buffer};
use crate::backend::Backend;
use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::graph::Graph;
use crate::guard;
use crate::plan::pooled::Pooled;
use crate::plan::separate;

/// Bytes that a plan uses on one device. [`Plan::measure`](crate::Plan::measure) tells them before anything is allocated,
/// [`Plan::memory`](crate::Plan::memory) afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The device.
    pub device: Device,
    /// For the plan's tensors: inputs, outputs, everything in between, and copies of what is read from other devices.
    pub tensors: usize,
    /// Scratch of the CPU backend for the largest node. The backend has it, and keeps it for the next run of any plan.
    pub scratch: usize,
    /// Storages of the parameters that the graph uses. They are there already, shared with other plans.
    pub params: usize,
}

impl MemoryUse {
    /// All of it.
    pub fn total(&self) -> usize {
        self.tensors
            .saturating_add(self.scratch)
            .saturating_add(self.params)
    }
}

/// Bytes by device for the plan's tensors.
///
/// # Errors
/// [`Error::Alloc`](crate::Error::Alloc).
pub(super) fn tensors(partition: &Partition, placement: Placement) -> Result<Vec<usize>> {
    match placement {
        Placement::Pooled => Pooled::new(partition)?.measure(partition),
        Placement::Separate { sentinel_bytes } => separate::size(partition, sentinel_bytes),
    }
}

/// Adds what lies outside of the plan, and checks that a device has as much.
///
/// # Errors
/// [`Error::Alloc`](crate::Error::Alloc).
pub(super) fn account(
    graph: &Graph,
    partition: &Partition,
    backends: &[Backend],
    tensors: &[usize],
) -> Result<Vec<MemoryUse>> {
    let mut uses = Vec::with_capacity(backends.len());
    for (i, backend) in backends.iter().enumerate() {
        uses.push(MemoryUse {
            device: backend.device(),
            tensors: tensors[i],
            scratch: scratch(partition, i, backend)?,
            params: 0,
        });
    }
    add_params(graph, &mut uses);
    for used in &uses {
        buffer::check_memory(
            used.device,
            used.total(),
            "a plan, its scratch and its parameters",
        )?;
    }
    Ok(uses)
}

/// The CPU backend allocates scratch when it runs a graph, where a failure ends the process: ask for its size before.
fn scratch(partition: &Partition, device: usize, backend: &Backend) -> Result<usize> {
    if backend.device().kind() != DeviceKind::Cpu {
        return Ok(0);
    }
    let splits = partition
        .splits
        .iter()
        .filter(|split| split.device == device);
    splits.into_iter().try_fold(0, |most, split| {
        // SAFETY: the graph is alive; without a pool nothing else is looked at.
        let plan = guard::call("ggml_graph_plan", || unsafe {
            sys::ggml_graph_plan(split.cgraph.as_ptr(), backend.threads() as i32, null_mut())
        })?;
        Ok(most.max(plan.work_size))
    })
}

fn add_params(graph: &Graph, uses: &mut Vec<MemoryUse>) {
    let storages = graph.params().iter().map(|leaf| leaf.param.storage());
    let storages: BTreeMap<_, _> = storages.map(|storage| (storage.id(), storage)).collect();
    for storage in storages.into_values() {
        let device = storage.device();
        match uses.iter_mut().find(|used| used.device == device) {
            Some(used) => used.params = used.params.saturating_add(storage.bytes()),
            None => uses.push(MemoryUse {
                device,
                tensors: 0,
                scratch: 0,
                params: storage.bytes(),
            }),
        }
    }
}
