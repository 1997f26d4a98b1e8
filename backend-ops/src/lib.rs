//! ggml's test-backend-ops for Rust.
//!
//! Runs single operations on a device and judges the results against an implementation in double precision, and against
//! ggml's CPU backend where it supports the case. Flags, case strings and output formats are upstream's; the seed, the
//! reference, the buffers (one per tensor, with sentinels) and the check of the dispatched kernel are ours.
//!
//! The binary `backend-ops` is [`cli`] and little else. A program of its own builds a [`session::Session`]:
//!
//! - [`case`] says what a case is; [`cases`] holds them, a file for each op; [`data`] fills the operands from a seed;
//! - [`runner`] runs one case on one device; [`routing`] asserts which kernel did the work;
//! - [`study`] holds what the stagings of a case are held to against each other;
//! - [`grad`] checks gradients in place of results, [`threads`] that the number of threads changes none;
//! - [`exact`] measures single elements, where that is asked for;
//! - [`pool`] starts processes that run cases, [`worker`] is what they do;
//! - [`outcome`] holds results, [`report`] prints them;
//! - [`select`], [`filter`] and [`coverage`] answer which cases and devices there are.
//!
//! ```
//! use backend_ops::cases::Set;
//!
//! let gate = Set::Gate.cases();
//! assert_eq!(gate.len(), 37);
//! assert_eq!(gate[0].name(), "OUT_PROD(type_a=f32,type_b=f32,m=256,n=1,k=1,bs=[1,1],nr=[1,1],trans_b=0)");
//! ```

mod bisect;
pub mod case;
pub mod cases;
pub mod cli;
pub mod coverage;
pub mod data;
pub mod exact;
pub mod filter;
pub mod grad;
pub mod modes;
pub mod outcome;
pub mod perf;
pub mod pool;
mod quick;
pub mod report;
pub mod routing;
pub mod runner;
mod schedule;
pub mod select;
pub mod session;
pub mod study;
pub mod support;
pub mod test_file;
pub mod threads;
pub mod vars;
pub mod verify;
mod wire;
pub mod worker;
