//! ggml's test-backend-ops for Rust.
//!
//! Runs single operations on a device and judges the results against an implementation in double precision, and against
//! ggml's CPU backend where it supports the case. Flags, case strings and output formats are upstream's; the seed, the
//! reference, the buffers (one per tensor, with sentinels) and the check of the dispatched kernel are ours.
//!
//! The folders of its source, each a module:
//!
//! - [`cli`]: the flags, what they must not be together, what the binary runs for them;
//! - [`select`]: which cases and devices a run is about: `-o`, `-p`, `--test-file`, the coverage;
//! - [`engine`]: runs one case ([`engine::runner`]) or all ([`engine::session`]), here or in worker processes;
//! - [`judge`]: holds a result to its reference, its kernel, its bits, the verifier's rules; [`judge::outcome`] is what comes of it;
//! - [`modes`]: what is done in place of that: gradients, times, support, numbers of threads, barriers;
//! - [`report`]: prints results, for people and as rows;
//! - [`cases`]: a folder for each family of ops, a file for each op; [`cases::case`] says what a case is and what its operands hold.
//!
//! The binary is [`cli`] and little else. A program of its own builds an [`engine::session::Session`]:
//!
//! ```
//! use backend_ops::cases::Set;
//!
//! let gate = Set::Gate.cases();
//! assert_eq!(gate.len(), 37);
//! assert_eq!(gate[0].name(), "OUT_PROD(type_a=f32,type_b=f32,m=256,n=1,k=1,bs=[1,1],nr=[1,1],trans_b=0)");
//! ```

pub mod cases;
pub mod cli;
pub mod engine;
pub mod judge;
pub mod modes;
pub mod report;
pub mod select;

// Short paths to what programs and cases name most.
pub use cases::case;
pub use cases::case::{data, vars};
#[doc(no_inline)]
pub use engine::{pool, runner, session, worker};
#[doc(no_inline)]
pub use judge::{exact, outcome, routing, study, verify};
#[doc(no_inline)]
pub use modes::{grad, perf, support, threads};
#[doc(no_inline)]
pub use select::{coverage, filter, test_file};
