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

mod buffer;
mod integers;
mod pooled;
mod separate;

use std::borrow::Cow;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ggml_sys as sys;

use crate::backend::Backend;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, OpError, Result};
use crate::graph::{Graph, Input, Output};
use crate::quantize::{dequantize, quantize};
use crate::trace::{Dispatch, Recorder};
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

/// A graph allocated on a device.
///
/// Memory starts as NaN bytes, so values that nothing has written show. Inputs keep their values from one
/// run to the next.
pub struct Plan {
    graph: Graph,
    device: Device,
    memory: PlanMemory,
    /// Which inputs have values.
    set: Vec<bool>,
    /// Whether outputs hold the results of a finished run.
    finished: bool,
}

// SAFETY: a plan owns its graph and buffers, and ggml ties neither to a thread.
unsafe impl Send for Plan {}

enum PlanMemory {
    // Only held: its buffers are reached through the graph's tensors.
    Pooled { _allocator: Pooled },
    Separate(Separate),
}

impl Plan {
    /// Checks that the backend's device runs every node, and allocates memory for the graph there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the first node that the device does not run; [`Error::Alloc`].
    #[doc(alias = "ggml_gallocr_alloc_graph")]
    pub fn new(graph: Graph, backend: &Backend, options: PlanOptions) -> Result<Self> {
        let device = backend.device();
        if let Some(unsupported) = device.unsupported(&graph).into_iter().next() {
            return Err(Error::Unsupported(Box::new(unsupported)));
        }
        let memory = match options.placement {
            Placement::Pooled => PlanMemory::Pooled {
                _allocator: Pooled::new(&graph, backend)?,
            },
            Placement::Separate { sentinel_bytes } => {
                PlanMemory::Separate(Separate::new(&graph, backend, sentinel_bytes)?)
            }
        };
        let set = vec![false; graph.input_count()];
        Ok(Self {
            graph,
            device,
            memory,
            set,
            finished: false,
        })
    }

    /// Sets an input from `f32` values in ne order, rounded to the input's type.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as elements; [`Error::DType`] for a type that f32
    /// values do not convert to; [`Error::Param`] for a token of another graph.
    #[track_caller]
    pub fn set_f32(&mut self, input: &Input, values: &[f32]) -> Result<()> {
        const CALL: &str = "Plan::set_f32";
        self.graph.input(CALL, input)?;
        let wanted = input.shape().elements();
        if values.len() != wanted {
            let detail = format!("{} values for an input of {wanted} elements", values.len());
            return Err(Error::Shape(OpError::new(CALL, detail, Vec::new())));
        }
        let bytes = match input.dtype() {
            DType::F32 => Cow::Borrowed(bytemuck::cast_slice(values)),
            dtype => Cow::Owned(quantize(dtype, values, input.shape().ne()[0])?),
        };
        self.set_bytes(input, &bytes)
    }

    /// Sets an input of i32, in ne order.
    ///
    /// # Errors
    /// [`Error::DType`] for an input of another type; [`Error::Shape`] unless there are as many values as elements;
    /// [`Error::Param`] for a token of another graph, and for ids that name what does not exist, or twice what is to be distinct.
    #[track_caller]
    pub fn set_i32(&mut self, input: &Input, values: &[i32]) -> Result<()> {
        const CALL: &str = "Plan::set_i32";
        self.graph.input(CALL, input)?;
        if input.dtype() != DType::I32 {
            let detail = format!("the input is of type {}", input.dtype());
            return Err(Error::DType(OpError::new(CALL, detail, Vec::new())));
        }
        self.set_bytes(input, bytemuck::cast_slice(values))
    }

    /// Sets an input from bytes of the input's type.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many bytes as the input has; [`Error::Param`] for a token of
    /// another graph, and for ids as in [`Plan::set_i32`].
    #[doc(alias = "ggml_backend_tensor_set")]
    #[track_caller]
    pub fn set_bytes(&mut self, input: &Input, bytes: &[u8]) -> Result<()> {
        const CALL: &str = "Plan::set_bytes";
        let tensor = self.graph.input(CALL, input)?;
        let wanted = input.shape().bytes(input.dtype())?;
        if bytes.len() != wanted {
            let detail = format!("{} bytes for an input of {wanted}", bytes.len());
            return Err(Error::Shape(OpError::new(CALL, detail, Vec::new())));
        }
        if let Some(rule) = self.graph.id_rule(input) {
            rule.check(CALL, input.dtype(), bytes, input.shape().ne()[0])?;
        }
        // SAFETY: the tensor is allocated and has exactly this many bytes, since inputs are contiguous.
        unsafe {
            sys::ggml_backend_tensor_set(tensor.as_ptr(), bytes.as_ptr().cast(), 0, bytes.len())
        };
        self.set[input.index()] = true;
        Ok(())
    }

    /// Runs the graph and waits for its end.
    ///
    /// # Errors
    /// [`Error::Param`] when an input has no values or the backend works on another device;
    /// [`Error::Compute`], which poisons the backend; [`Error::Poisoned`] afterwards.
    #[doc(alias = "ggml_backend_graph_compute")]
    #[track_caller]
    pub fn run(&mut self, backend: &mut Backend) -> Result<()> {
        self.check_ready("Plan::run", backend)?;
        let _running = Running::enter(self.device);
        self.compute(backend)
    }

    /// Runs the graph and returns what was dispatched for it, in order of encoding.
    ///
    /// The list is empty on devices that keep no record, such as the CPU.
    ///
    /// # Errors
    /// As [`Plan::run`].
    #[track_caller]
    pub fn run_traced(&mut self, backend: &mut Backend) -> Result<Vec<Dispatch>> {
        self.check_ready("Plan::run_traced", backend)?;
        let _running = Running::alone();
        let Some(recorder) = Recorder::of(self.device) else {
            return self.compute(backend).map(|()| Vec::new());
        };
        let (outcome, dispatches) = recorder.record(|| self.compute(backend));
        outcome.map(|()| dispatches)
    }

    /// Reads an output as `f32` in ne order, converted from the output's type.
    ///
    /// # Errors
    /// [`Error::Param`] before a run has finished, and for a token of another graph; [`Error::DType`] for a
    /// type that does not convert to f32.
    #[track_caller]
    pub fn read_f32(&self, output: &Output) -> Result<Vec<f32>> {
        let bytes = self.read_bytes(output)?;
        dequantize(output.dtype(), &bytes)
    }

    /// Reads an output as bytes of the output's type.
    ///
    /// # Errors
    /// [`Error::Param`] before a run has finished, and for a token of another graph.
    #[doc(alias = "ggml_backend_tensor_get")]
    #[track_caller]
    pub fn read_bytes(&self, output: &Output) -> Result<Vec<u8>> {
        const CALL: &str = "Plan::read_bytes";
        let tensor = self.graph.output(CALL, output)?;
        if !self.finished {
            return Err(Error::Param(OpError::new(
                CALL,
                "no run has finished: call run() first",
                Vec::new(),
            )));
        }
        let mut bytes = vec![0; output.shape().bytes(output.dtype())?];
        // SAFETY: the tensor is allocated and has exactly this many bytes, since outputs are contiguous.
        unsafe {
            sys::ggml_backend_tensor_get(tensor.as_ptr(), bytes.as_mut_ptr().cast(), 0, bytes.len())
        };
        Ok(bytes)
    }

    /// Checks the watched bytes behind every tensor.
    ///
    /// # Errors
    /// [`Error::Overrun`] for the first tensor behind which a byte changed; [`Error::Param`] unless the plan
    /// was made with [`Placement::Separate`].
    #[track_caller]
    pub fn check_sentinels(&self) -> Result<()> {
        match &self.memory {
            PlanMemory::Separate(memory) => memory.check(),
            PlanMemory::Pooled { .. } => {
                let detail =
                    "pooled tensors have no watched bytes: make the plan with Placement::Separate";
                Err(Error::Param(OpError::new(
                    "Plan::check_sentinels",
                    detail,
                    Vec::new(),
                )))
            }
        }
    }

    #[track_caller]
    fn check_ready(&self, call: &'static str, backend: &Backend) -> Result<()> {
        let refuse = |detail: String| Err(Error::Param(OpError::new(call, detail, Vec::new())));
        if backend.device() != self.device {
            return refuse(format!(
                "the plan is on {}, the backend on {}",
                self.device.name(),
                backend.device().name()
            ));
        }
        if let Some(index) = self.set.iter().position(|set| !set) {
            return refuse(format!(
                "input `{}` has no values: set it first",
                self.graph.input_name(index)
            ));
        }
        Ok(())
    }

    fn compute(&mut self, backend: &mut Backend) -> Result<()> {
        self.finished = false;
        // SAFETY: the graph is alive; `new` allocated its tensors on this device and checked that the device
        // runs every node; `check_ready` compared the devices.
        unsafe { backend.compute(self.graph.cgraph())? };
        self.finished = true;
        Ok(())
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("graph", &self.graph)
            .field("device", &self.device)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// Keeps runs apart where they would share state: the recorder of dispatches, and everything that the
/// simulated device reports about a run, belong to the process.
enum Running {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

static RUNS: RwLock<()> = RwLock::new(());

impl Running {
    fn enter(device: Device) -> Self {
        if device.is_simulated() {
            return Self::alone();
        }
        // The lock protects no data, so a panic under it leaves nothing behind.
        Self::Shared {
            _guard: RUNS.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn alone() -> Self {
        Self::Alone {
            _guard: RUNS.write().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
