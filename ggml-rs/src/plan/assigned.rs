//! What runs where, for people to read.

use super::partition::Partition;
use crate::device::Device;
use crate::graph::node;
use crate::support;

/// A node of a plan and the device that runs it. [`Plan::assigned`](crate::Plan::assigned) lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assigned {
    /// The node's name in the graph.
    pub node: String,
    /// Its op, by ggml's name in upper case.
    pub op: String,
    /// Where it runs.
    pub device: Device,
    /// Why the first device does not run it. `None` where it does, and where it could but the node shares memory with one
    /// that it does not run.
    pub reason: Option<String>,
}

/// Every node that computes, in the order in which they run.
pub(super) fn list(partition: &Partition) -> impl Iterator<Item = Assigned> + '_ {
    let first = partition.devices[0];
    // SAFETY: the plan keeps its graph's tensors alive.
    partition
        .home_of_graph()
        .filter(|&(tensor, _)| !unsafe { node::is_empty(tensor) })
        .map(move |(tensor, device)| unsafe {
            let refused = (device != first).then(|| support::check(first, tensor));
            Assigned {
                node: node::name(tensor),
                op: node::op_name(tensor),
                device,
                reason: refused.flatten().map(|refused| refused.reason),
            }
        })
}
