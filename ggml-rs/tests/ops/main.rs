//! What ops compute: values on every device, layouts, memory that is used again, requests of precision, and quantized types.
//!
//! What a process reads once (the order of dispatches, what lies behind a buffer, the level of the CPU, the tensor API) is set for a
//! child, which runs the tests of its module alone.

#[path = "../common/mod.rs"]
mod common;

mod aliasing;
mod expert_range;
mod forward;
mod interpreter;
mod mul_mat_staging;
mod neighbours;
mod operand_bounds;
mod products;
mod quantize;
mod reductions;
mod setters;
mod written_views;
