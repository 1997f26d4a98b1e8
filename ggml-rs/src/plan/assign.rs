//! Which device runs which node.
//!
//! A tensor lives on the device that computes it. Whatever writes to its memory (a copy into it, an op in place) runs on
//! that device too, so tensors that share memory, and the nodes that write there, are one group with one device: the first
//! that runs all of the group's nodes. Reading across devices goes through copies (`partition`).
//!
//! ggml has a scheduler of its own. It asks `supports_op`, which is no guard on the CPU, ends the process where a parameter
//! lies on a device that does not run a node that writes it, and sizes its memory by 60 tensors a node.

use std::collections::HashMap;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::backend::Fallback;
use crate::device::Device;
use crate::error::{Error, Result, Unsupported};
use crate::graph::{Graph, node};
use crate::support;

/// The place of each tensor in a graph's list.
pub(super) type Index = HashMap<NonNull<sys::ggml_tensor>, usize>;

pub(super) fn index(graph: &Graph) -> Index {
    let tensors = graph.tensors().iter();
    tensors
        .enumerate()
        .map(|(i, &tensor)| (tensor, i))
        .collect()
}

/// The device of each tensor of the graph, as an index into `devices`.
///
/// # Errors
/// [`Error::Unsupported`] for the first node that no device runs, or that the first does not while fallback is forbidden;
/// [`Error::Device`] for a parameter in memory that none of them can use.
pub(super) fn assign(graph: &Graph, devices: &[Device], fallback: Fallback) -> Result<Vec<usize>> {
    let usable = match fallback {
        Fallback::Allow => devices,
        Fallback::Forbid => &devices[..1],
    };
    if let [device] = usable {
        check_params(graph, usable)?;
        return match alone(*device, graph) {
            Some(unsupported) => Err(Error::Unsupported(Box::new(unsupported))),
            None => Ok(vec![0; graph.tensors().len()]),
        };
    }
    check_params(graph, usable)?;
    let mut groups = Groups::of(graph);
    let masks = masks(graph, usable, &mut groups)?;
    Ok(homes(graph, &mut groups, &masks))
}

/// The first node that a device does not run, with the way out that every device but the CPU has where its reason names none.
fn alone(device: Device, graph: &Graph) -> Option<Unsupported> {
    let cpu = Device::cpu().ok().filter(|&cpu| cpu != device);
    // SAFETY: the graph keeps its tensors alive.
    graph.tensors().iter().find_map(|&tensor| unsafe {
        let mut refused = support::check(device, tensor)?;
        let elsewhere = cpu.is_some_and(|cpu| support::check(cpu, tensor).is_none());
        if elsewhere && !refused.reason.contains(support::WAY_OUT) {
            refused.reason.push_str("; the CPU runs it: ");
            refused.reason.push_str(support::WAY_OUT);
        }
        Some(refused)
    })
}

/// # Errors
/// [`Error::Device`] for a parameter in memory that none of the devices can use.
fn check_params(graph: &Graph, devices: &[Device]) -> Result<()> {
    for leaf in graph.params() {
        let kind = leaf.param.storage().buffer_type();
        if !devices.iter().any(|device| device.takes(kind)) {
            let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
            let detail = format!(
                "it lies on {}, whose memory {} cannot use: allocate it there, or schedule the plan on {0} too",
                leaf.param.device().name(),
                names.join(" and ")
            );
            return Err(Error::device(
                format!("use parameter `{}`", leaf.param.name()),
                detail,
            ));
        }
    }
    Ok(())
}

/// Tensors that must be on one device, by their place in the graph's list.
pub(super) struct Groups {
    parent: Vec<usize>,
    index: Index,
}

impl Groups {
    pub fn of(graph: &Graph) -> Self {
        let mut groups = Self {
            parent: (0..graph.tensors().len()).collect(),
            index: index(graph),
        };
        for &tensor in graph.tensors() {
            // SAFETY: the graph keeps its tensors alive, and has the base and the operands of each.
            let (base, written) = unsafe { (node::base(tensor), node::written(tensor)) };
            for other in written.into_iter().chain([base]) {
                groups.join(tensor, other);
            }
        }
        groups
    }

    fn join(&mut self, a: NonNull<sys::ggml_tensor>, b: NonNull<sys::ggml_tensor>) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }

    /// The group of a tensor, named by its first member.
    pub fn find(&mut self, tensor: NonNull<sys::ggml_tensor>) -> usize {
        let mut at = self.index[&tensor];
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }
}

/// For each group, a bit for each device that runs all of its nodes and can use its memory.
fn masks(graph: &Graph, devices: &[Device], groups: &mut Groups) -> Result<Vec<u32>> {
    let mut masks = vec![(1 << devices.len()) - 1; graph.tensors().len()];
    for leaf in graph.params() {
        let kind = leaf.param.storage().buffer_type();
        masks[groups.find(leaf.tensor)] &= mask(devices, |device| device.takes(kind));
    }
    for &tensor in graph.tensors() {
        // SAFETY: the graph keeps its tensors alive.
        if unsafe { node::is_empty(tensor) } {
            continue;
        }
        // SAFETY: as above.
        let runs = |device: Device| unsafe { support::check(device, tensor) }.is_none();
        let group = &mut masks[groups.find(tensor)];
        let runs = mask(devices, runs);
        if *group & runs == 0 {
            return Err(nowhere(devices, tensor, runs != 0));
        }
        *group &= runs;
    }
    Ok(masks)
}

fn mask(devices: &[Device], holds: impl Fn(Device) -> bool) -> u32 {
    let bits = devices.iter().enumerate();
    bits.map(|(i, &device)| u32::from(holds(device)) << i).sum()
}

/// The error of a node that no device runs where it must.
fn nowhere(devices: &[Device], tensor: NonNull<sys::ggml_tensor>, alone: bool) -> Error {
    // SAFETY: the tensor is the graph's, which is alive.
    let refusals: Vec<_> = devices
        .iter()
        .filter_map(|&device| unsafe { support::check(device, tensor) })
        .collect();
    let shared =
        "it shares memory with nodes that this device does not run, or with a parameter elsewhere";
    let mut refusals = refusals.into_iter();
    match refusals.next() {
        Some(first) if !alone => {
            let others: Vec<_> = refusals
                .map(|other| format!("{}: {}", other.device, other.reason))
                .collect();
            Error::Unsupported(Box::new(Unsupported {
                reason: format!(
                    "{}; and no other device of the scheduler runs it ({})",
                    first.reason,
                    others.join("; ")
                ),
                ..first
            }))
        }
        Some(first) => Error::Unsupported(Box::new(Unsupported {
            reason: format!("{}; where it runs, {shared}", first.reason),
            ..first
        })),
        // SAFETY: as above.
        None => Error::Unsupported(Box::new(unsafe {
            Unsupported {
                device: devices[0].name().to_owned(),
                op: node::op_name(tensor),
                node: node::name(tensor),
                operands: Vec::new(),
                reason: shared.to_owned(),
            }
        })),
    }
}

/// The device of each tensor. Inputs that nothing writes to are where they are read first.
fn homes(graph: &Graph, groups: &mut Groups, masks: &[u32]) -> Vec<usize> {
    let mut home: Vec<Option<usize>> = vec![None; masks.len()];
    let mut choose = |group: usize| {
        home[group]
            .get_or_insert(masks[group].trailing_zeros() as usize)
            .to_owned()
    };
    for leaf in graph.params() {
        choose(groups.find(leaf.tensor));
    }
    let nodes = graph.tensors().iter().copied();
    // SAFETY: the graph keeps its tensors alive.
    let nodes: Vec<_> = nodes
        .filter(|&tensor| !unsafe { node::is_empty(tensor) })
        .collect();
    for &tensor in &nodes {
        choose(groups.find(tensor));
    }
    for &tensor in &nodes {
        let device = home[groups.find(tensor)];
        // SAFETY: as above.
        for source in unsafe { tensor.as_ref() }
            .src
            .into_iter()
            .filter_map(NonNull::new)
        {
            let group = groups.find(source);
            home[group] = home[group].or(device);
        }
    }
    let tensors = graph.tensors().iter();
    tensors
        .map(|&tensor| home[groups.find(tensor)].unwrap_or(0))
        .collect()
}
