//! ggml for Rust: devices, graphs and plans whose safe calls cannot end the process.
//!
//! A [`Graph`] is built in a closure, a [`Plan`] gives it memory on a [`Device`], a [`Backend`] runs it:
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
//!
//! let (graph, (weight, x, y)) = Graph::build(|g| {
//!     let (weight, weight_in) = g.input("weight", DType::F32, [3, 2])?;
//!     let (x, x_in) = g.input("x", DType::F32, [3, 1])?;
//!     let y = g.output("y", weight.mul_mat(x)?.relu()?)?;
//!     Ok((weight_in, x_in, y))
//! })?;
//!
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&weight, &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0])?;
//! plan.set_f32(&x, &[1.0, 1.0, 1.0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&y)?, [6.0, 0.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```
//!
//! # What makes it safe
//! ggml answers a wrong argument by ending the process. This crate therefore
//! 1. checks every op's operands before ggml sees them, and returns errors that name the op, the operands and
//!    where the op was written ([`Error`]);
//! 2. checks, when a plan is made, that the device runs every node, against tables of its own, because a
//!    device's answer alone is not reliable ([`Device::unsupported`]);
//! 3. checks sizes before memory is asked for, and keeps the threads that share parameters apart ([`params`]);
//! 4. turns an assertion that is hit all the same while a graph is built or allocated into
//!    [`Error::Internal`]. This last net needs unwinding: it does not exist with `panic = "abort"`, nor while
//!    a graph computes.
//!
//! # Features
//! | feature | |
//! |---|---|
//! | `metal` (default) | Apple's GPU, on macOS |
//! | `accelerate` (default) | Apple's BLAS, on macOS |
//! | `blas` | the machine's own OpenBLAS, which pkg-config must find, everywhere but on macOS: one more device |
//! | `metal-sim` | the simulated Metal device, everywhere but on macOS: the Metal backend's own code on the CPU, for tests |
//! | `verifier` | the simulated device checks each access to memory that a kernel makes: [`sim`] |
//! | `safetensors` | the reader of safetensors files: [`files`] |
//! | `log` | ggml's log through the `log` crate, under the target `ggml`; without it the log is dropped |

#![deny(missing_docs)]

pub mod backend;
pub mod check;
pub mod device;
pub mod dtype;
pub mod error;
pub mod files;
pub mod graph;
pub mod params;
pub mod plan;
pub mod quantize;
pub mod registry;
pub mod shape;
pub mod sim;
pub mod trace;
pub mod train;

mod guard;
mod inside;
mod layout;
mod logging;
mod memory;
mod names;
mod runtime;
mod support;
mod tasks;

pub use backend::{
    Backend, Cancel, Executor, Fallback, Priority, Scheduler, ThreadPool, ThreadPoolOptions,
};
pub use device::{Device, DeviceKind, Memory};
pub use dtype::DType;
pub use error::{Error, Result};
pub use graph::{
    AdamW, BackwardOptions, Builder, Conv1d, Conv2d, Conv3d, ConvOptions, CustomInput, CustomTask,
    Element, ExpertIds, FlashAttn, GatedDeltaNet, GluOp, Gradients, Graph, Input, Interpolation,
    Output, Pool, Pool1d, Pool2d, PoolOptions, Precision, Rope, RopeMode, Route, RowIds,
    RowIdsOptions, Scale, SoftMax, SortOrder, SsmScan, Staging, Tasks, Tensor, TriPart,
};
pub use params::{Param, Params, ParamsBuilder};
pub use plan::{Assigned, MemoryUse, Placement, Plan, PlanOptions, RunOptions, RunReport};
pub use registry::RegistryOptions;
pub use shape::{IntoShape, Shape};
