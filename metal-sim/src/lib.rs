//! ggml's Metal backend without a Mac: its kernels, translated from the Metal Shading Language to C++ and run on the
//! CPU, behind its own, unchanged host code.
//!
//! Two halves. The C++ under `cpp/` stands in for Apple's: `shim` for the Metal standard library, `runtime` for threads,
//! threadgroups and barriers, `device` for ggml's two Objective-C files. This crate is the other half: it translates the
//! kernels of a (patched) ggml tree and compiles everything to objects. ggml-sys's build script calls [`Build`]; nothing
//! of this crate is linked into a program.
//!
//! The translation changes no more than it must, and what it does not know is an [`Error`] that names the file, the line
//! and the construct. See `src/transform/` for one module per construct.
//!
//! What the simulated device computes is defined by the MSL and IEEE rules, not checked against Apple hardware.
//!
//! ```no_run
//! # fn main() -> Result<(), metal_sim::Error> {
//! // `ggml` holds include/ and src/; objects of unchanged units are reused on the next call.
//! let objects = metal_sim::Build::new("ggml", "out/metal-sim").compile()?;
//! let kernels = objects.iter().find(|object| object.unit == "mul_mm");
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod build;
mod emit;
mod error;
mod extract;
mod include;
mod lex;
mod plugin;
mod tokens;
mod transform;
mod unit;

pub use build::{Build, Object};
pub use error::{Error, Location};
