//! ggml for Rust: devices, graphs and plans whose safe calls cannot end the process.
//!
//! (Signatures first: bodies that need ggml follow.)

pub mod backend;
pub mod check;
pub mod device;
pub mod dtype;
pub mod error;
pub mod graph;
pub mod plan;
pub mod quantize;
pub mod registry;
pub mod shape;
pub mod trace;

pub use backend::Backend;
pub use device::{Device, DeviceKind};
pub use dtype::DType;
pub use error::{Error, Result};
pub use graph::{Builder, Graph, Input, Output, Precision, Staging, Tensor};
pub use plan::{Placement, Plan, PlanOptions};
pub use shape::{IntoShape, Shape};
