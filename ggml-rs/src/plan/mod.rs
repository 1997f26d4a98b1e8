//! Plans: a graph with memory on a device, ready to run.
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Placement, Plan, PlanOptions};
//!
//! let (graph, (x, y)) = Graph::build(|g| {
//!     let (x, x_in) = g.input("x", DType::F32, [4])?;
//!     Ok((x_in, g.output("y", x.scale(2.0)?)?))
//! })?;
//! let mut backend = Device::cpu()?.open()?;
//!
//! // Every tensor in a buffer of its own, with 1 KiB behind it that nothing may write to.
//! let placement = Placement::Separate { sentinel_bytes: 1024 };
//! let mut plan = Plan::new(graph, &backend, PlanOptions { placement })?;
//! plan.set_f32(&x, &[1.0, 2.0, 3.0, 4.0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&y)?, [2.0, 4.0, 6.0, 8.0]);
//! plan.check_sentinels()?;
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod assign;
mod assigned;
pub(crate) mod buffer;
mod integers;
mod memory;
mod partition;
mod pooled;
mod run;
mod separate;

use std::borrow::Cow;
use std::fmt;

use ggml_sys as sys;

pub use assigned::Assigned;
pub use memory::MemoryUse;
pub use run::{RunOptions, RunReport};

use crate::backend::{Backend, Executor};
use crate::device::Device;
use crate::dtype::DType;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Call, Placed, Result};
use crate::graph::{Graph, Input, Output};
use crate::logging;
use crate::params::{Accesses, Wait};
use crate::quantize::{check_dequantize, dequantize_checked, quantize_in};
use partition::Partition;
use pooled::Pooled;
use separate::Separate;

/// Where a plan puts its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In pooled memory, where a tensor's bytes are used again once nothing needs them.
    #[default]
    Pooled,
    /// Every tensor in a buffer of its own, followed by watched bytes: for tests.
    ///
    /// Faults that only show when operands lie in different buffers show here.
    Separate {
        /// How many bytes are watched behind each tensor; 0 watches nothing.
        sentinel_bytes: usize,
    },
}

/// How a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanOptions {
    /// Where its tensors lie.
    pub placement: Placement,
}

/// A graph allocated on a device, or on several.
///
/// Memory starts as NaN bytes, so values that nothing has written show. Inputs keep their values from one
/// run to the next. Parameters ([`Params`](crate::Params)) lie outside of the plan.
pub struct Plan {
    graph: Graph,
    partition: Partition,
    memory: PlanMemory,
    uses: Vec<MemoryUse>,
    accesses: Accesses,
    /// Which inputs have values, or need none.
    set: Vec<bool>,
    /// Whether outputs hold the results of a finished run.
    finished: bool,
}

// SAFETY: a plan owns its graph and buffers, and ggml ties neither to a thread; the parameters of its graph are under locks.
unsafe impl Send for Plan {}

enum PlanMemory {
    // Only held: its buffers are reached through the graph's tensors.
    Pooled { _allocator: Pooled },
    Separate(Separate),
}

impl Plan {
    /// Checks that the backend's device runs every node, and allocates memory for the graph there. Given a
    /// [`Scheduler`](crate::Scheduler), divides the graph among its backends.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the first node that the device does not run, or that none of the scheduler's does;
    /// [`Error::Alloc`]; [`Error::Device`] for a parameter in memory that the device cannot use.
    #[doc(alias = "ggml_gallocr_alloc_graph")]
    pub fn new(graph: Graph, on: &impl Executor, options: PlanOptions) -> Result<Self> {
        let _lines = logging::hold();
        let partition = partition(&graph, on)?;
        Self::on_partition(graph, partition, on.backends(), options)
    }

    fn on_partition(
        graph: Graph,
        partition: Partition,
        backends: &[Backend],
        options: PlanOptions,
    ) -> Result<Self> {
        let account = |tensors: &[usize]| memory::account(&graph, &partition, backends, tensors);
        let (memory, uses) = match options.placement {
            Placement::Pooled => {
                let pooled = Pooled::new(&partition)?;
                let mut uses = account(&pooled.measure(&partition)?)?;
                pooled.allocate(&graph, &partition)?;
                for (used, allocated) in uses.iter_mut().zip(pooled.allocated()) {
                    used.tensors = allocated;
                }
                (PlanMemory::Pooled { _allocator: pooled }, uses)
            }
            Placement::Separate { sentinel_bytes } => {
                let uses = account(&separate::size(&partition, sentinel_bytes)?)?;
                let separate = Separate::new(&partition, sentinel_bytes)?;
                (PlanMemory::Separate(separate), uses)
            }
        };
        Ok(Self {
            accesses: Accesses::of(&graph),
            set: graph.needed_inputs().iter().map(|needed| !needed).collect(),
            finished: false,
            graph,
            partition,
            memory,
            uses,
        })
    }

    /// What [`Plan::new`] would use, by device in the order of `on`. Nothing is allocated.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, _) = Graph::build(|g| {
    ///     let (x, _) = g.input("x", DType::F32, [1024])?;
    ///     g.output("y", x.scale(2.0)?)
    /// })?;
    /// let backend = Device::cpu()?.open()?;
    /// let before = Plan::measure(&graph, &backend, PlanOptions::default())?;
    /// assert_eq!(before[0].tensors, 2 * 4096);
    /// let plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// assert_eq!(plan.memory(), before);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::new`].
    #[doc(alias = "ggml_gallocr_reserve_n_size")]
    pub fn measure(
        graph: &Graph,
        on: &impl Executor,
        options: PlanOptions,
    ) -> Result<Vec<MemoryUse>> {
        let _lines = logging::hold();
        let partition = partition(graph, on)?;
        let uses = memory::tensors(&partition, options.placement)
            .and_then(|tensors| memory::account(graph, &partition, on.backends(), &tensors));
        partition.undo();
        uses
    }

    /// What the plan uses, by device.
    #[doc(alias = "ggml_gallocr_get_buffer_size")]
    pub fn memory(&self) -> &[MemoryUse] {
        &self.uses
    }

    /// Every node that computes, in the order in which they run, with its device.
    #[doc(alias = "ggml_backend_sched_get_tensor_backend")]
    pub fn assigned(&self) -> impl Iterator<Item = Assigned> + '_ {
        assigned::list(&self.partition)
    }

    /// How many runs of nodes on one device follow each other.
    #[doc(alias = "ggml_backend_sched_get_n_splits")]
    pub fn splits(&self) -> usize {
        self.partition.splits.len()
    }

    /// How many tensors a run copies from one device to another.
    pub fn copies(&self) -> usize {
        self.partition.copies_in_a_run()
    }

    /// Whether a run reads an input: whether an output, or what the graph writes to a parameter or to another input, depends on
    /// it. An input that is not needed has no values, and setting it is an error.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    ///
    /// // A graph that only predicts takes labels, as one that trains does, and reads none.
    /// let (graph, (x, labels, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [4])?;
    ///     let (labels, labels_in) = g.input("labels", DType::F32, [4])?;
    ///     let y = x.scale(2.0)?;
    ///     let _loss = y.sub(labels)?.sqr()?.mean()?; // no output
    ///     Ok((x_in, labels_in, g.output("y", y)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// assert!(plan.needs(&x)? && !plan.needs(&labels)?);
    /// assert!(plan.set_f32(&labels, &[0.0; 4]).is_err());
    /// plan.set_f32(&x, &[1.0; 4])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [2.0; 4]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Param`] for a token of another graph.
    #[track_caller]
    pub fn needs(&self, input: &Input) -> Result<bool> {
        let call = Call::new("Plan::needs");
        self.graph.input(call, input)?;
        Ok(self.graph.needed_inputs()[input.index()])
    }

    /// Sets an input from `f32` values in ne order, rounded to the input's type.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as elements; [`Error::DType`] for a type that f32
    /// values do not convert to; [`Error::Param`] for a token of another graph, for an input that the graph does not
    /// [need](Plan::needs), and for values that [`quantize`](crate::quantize::quantize) refuses.
    #[track_caller]
    pub fn set_f32(&mut self, input: &Input, values: &[f32]) -> Result<()> {
        let call = Call::new("Plan::set_f32");
        self.graph.needed_input(call, input)?;
        let wanted = input.shape().elements();
        if values.len() != wanted {
            return Err(call.shape(format!(
                "{} values for input `{}` of {wanted} elements",
                values.len(),
                self.graph.input_name(input.index())
            )));
        }
        let bytes = match input.dtype() {
            DType::F32 => Cow::Borrowed(bytemuck::cast_slice(values)),
            dtype => Cow::Owned(quantize_in(
                call,
                dtype,
                values,
                input.shape().ne()[0],
                None,
            )?),
        };
        self.put(call, input, &bytes)
    }

    /// Sets an input of i32, in ne order.
    ///
    /// # Errors
    /// [`Error::DType`] for an input of another type; [`Error::Shape`] unless there are as many values as elements;
    /// [`Error::Param`] for a token of another graph, for an input that the graph does not [need](Plan::needs), and for ids that
    /// name what does not exist, or twice what is to be distinct.
    #[track_caller]
    pub fn set_i32(&mut self, input: &Input, values: &[i32]) -> Result<()> {
        self.set_integers(Call::new("Plan::set_i32"), input, DType::I32, values)
    }

    /// Sets an input from bytes of the input's type.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many bytes as the input has; [`Error::Param`] for a token of
    /// another graph, for an input that the graph does not [need](Plan::needs), and for ids as in [`Plan::set_i32`].
    #[doc(alias = "ggml_backend_tensor_set")]
    #[track_caller]
    pub fn set_bytes(&mut self, input: &Input, bytes: &[u8]) -> Result<()> {
        self.put(Call::new("Plan::set_bytes"), input, bytes)
    }

    /// Sets an input for any of the public functions that do.
    fn put(&mut self, call: Call, input: &Input, bytes: &[u8]) -> Result<()> {
        let tensor = self.graph.needed_input(call, input)?;
        let wanted = input.shape().checked_bytes(input.dtype()).of(call)?;
        let name = || self.graph.input_name(input.index());
        if bytes.len() != wanted {
            let detail = format!("{} bytes for input `{}` of {wanted}", bytes.len(), name());
            return Err(call.shape(detail));
        }
        if let Some(rule) = self.graph.id_rule(input) {
            rule.check(input.dtype(), bytes, input.shape().ne()[0])
                .map_err(|why| call.param(format!("input `{}`: {why}", name())))?;
        }
        // SAFETY: the tensor is allocated and has exactly this many bytes, since inputs are contiguous.
        unsafe {
            sys::ggml_backend_tensor_set(tensor.as_ptr(), bytes.as_ptr().cast(), 0, bytes.len())
        };
        self.set[input.index()] = true;
        Ok(())
    }

    /// Reads an output as `f32` in ne order, converted from the output's type.
    ///
    /// # Errors
    /// [`Error::Param`] before a run has finished, and for a token of another graph; [`Error::DType`] for a
    /// type that does not convert to f32.
    #[track_caller]
    pub fn read_f32(&self, output: &Output) -> Result<Vec<f32>> {
        let call = Call::new("Plan::read_f32");
        let tensor = self.graph.output(call, output)?;
        let dtype = output.dtype();
        check_dequantize(dtype, 0)
            .map_err(|refused| call.dtype(self.graph.about_output(tensor, refused.detail())))?;
        dequantize_checked(dtype, &self.take(call, output)?)
    }

    /// Reads an output as bytes of the output's type.
    ///
    /// # Errors
    /// [`Error::Param`] before a run has finished, and for a token of another graph.
    #[doc(alias = "ggml_backend_tensor_get")]
    #[track_caller]
    pub fn read_bytes(&self, output: &Output) -> Result<Vec<u8>> {
        self.take(Call::new("Plan::read_bytes"), output)
    }

    /// Reads an output for any of the public functions that do.
    fn take(&self, call: Call, output: &Output) -> Result<Vec<u8>> {
        let tensor = self.graph.output(call, output)?;
        if !self.finished {
            return Err(call.param("no run has finished: call run() first"));
        }
        let mut bytes = vec![0; output.shape().checked_bytes(output.dtype()).of(call)?];
        // An output may be a parameter, or lie in one.
        let _shared = match self.graph.param_of(tensor) {
            Some(leaf) => Some(leaf.param.storage().hold(call, false, Wait::Yes)?),
            None => None,
        };
        // SAFETY: the tensor is allocated and has exactly this many bytes, since outputs are contiguous.
        unsafe {
            sys::ggml_backend_tensor_get(tensor.as_ptr(), bytes.as_mut_ptr().cast(), 0, bytes.len())
        };
        Ok(bytes)
    }

    /// Where an output lies, as ggml knows it: an address to look up, not to read from.
    #[cfg(feature = "verifier")]
    #[track_caller]
    pub(crate) fn address_of(&self, output: &Output) -> Option<*const std::ffi::c_void> {
        let call = Call::new("Plan::address_of");
        let tensor = self.graph.output(call, output).ok()?;
        // SAFETY: the graph keeps its tensors alive.
        Some(unsafe { tensor.as_ref() }.data.cast_const())
    }

    /// Checks the watched bytes behind every tensor.
    ///
    /// # Errors
    /// [`Error::Overrun`] for the first tensor behind which a byte changed; [`Error::Param`] unless the plan
    /// was made with [`Placement::Separate`].
    #[track_caller]
    pub fn check_sentinels(&self) -> Result<()> {
        let call = Call::new("Plan::check_sentinels");
        match &self.memory {
            PlanMemory::Separate(memory) => memory.check(),
            PlanMemory::Pooled { .. } => Err(call.param(
                "pooled tensors have no watched bytes: make the plan with Placement::Separate",
            )),
        }
    }

    fn devices(&self) -> &[Device] {
        &self.partition.devices
    }
}

/// Divides a graph among an executor's devices.
fn partition(graph: &Graph, on: &impl Executor) -> Result<Partition> {
    let devices = on.backends().iter().map(Backend::device).collect();
    Partition::new(graph, devices, on.fallback())
}

fn names(devices: impl Iterator<Item = Device>) -> String {
    devices.map(Device::name).collect::<Vec<_>>().join(" and ")
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("graph", &self.graph)
            .field("devices", &self.devices())
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
