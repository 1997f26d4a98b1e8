//! Raw bindings to ggml: a pinned version, patched, compiled by this crate's build script.
//!
//! The bindings are made from ggml's own headers, so ggml's documentation is theirs; use `ggml-rs` for a safe API. Rust
//! names are ggml's (`ggml_init`), the linked symbols carry a prefix (`ggmlrs_ggml_init`), so that a program may also
//! hold another crate's plain ggml. Functions are declared `extern "C-unwind"`: a panic that ggml's abort callback raises
//! may pass through them.
//!
//! ```
//! // SAFETY: takes nothing and returns a string literal.
//! let version = unsafe { std::ffi::CStr::from_ptr(ggml_sys::ggml_version()) };
//! assert_eq!(version.to_str(), Ok(ggml_sys::BUILD.ggml_version));
//! assert_eq!(ggml_sys::compiled_hash(), ggml_sys::BUILD.hash);
//! ```
//!
//! # Requirements
//! A 64-bit little-endian target and a C++ compiler: g++ 12, Clang 15, Apple Clang 14, or newer.
//!
//! # CPUs
//! An x86-64 archive for Linux or Android holds the CPU backend three times, for x86-64-v2, v3 and v4, and picks at run
//! time; the rest is compiled for v2. The feature `native`, or target features given to rustc (`-C target-cpu`,
//! `-C target-feature`), make it one copy for just that. Macs and Windows get one copy, for x86-64-v3; aarch64 one for
//! its target features. **Check the CPU before any other call** (module [`cpu`]; `ggml-rs` does).
//!
//! The environment variable `GGML_RS_CPU_LEVEL` (`v2`, `v3`, `v4`) lowers the level at run time, for tests: results are
//! those of a CPU of that level. Another value, or a level above the machine's, is an error.
//!
//! # Features
//! | feature | default | effect |
//! |---|---|---|
//! | `metal` | yes | the Metal backend, with embedded kernel sources; macOS only |
//! | `accelerate` | yes | the BLAS backend on Accelerate; macOS only |
//! | `blas` | no | the BLAS backend on the machine's own OpenBLAS, found through pkg-config; everywhere but on macOS |
//! | `metal-sim` | no | the Metal backend on a simulated device; Linux only |
//! | `native` | no | compile for the CPU of the machine that builds, and for no other |
//! | `buildtime-bindgen` | no | generate the bindings during the build instead of using those in git (needs libclang) |
//!
//! # Environment variables of the build
//! | variable | effect |
//! |---|---|
//! | `GGML_SRC_DIR` | take ggml from a checkout instead of the pinned package; the patches must apply to it |
//! | `CC`, `CXX`, `CFLAGS`, `CXXFLAGS` | as the `cc` crate reads them |
//! | `DOCS_RS` | neither fetch nor compile anything |
//!
//! # Metadata for build scripts of dependants
//! | variable | content |
//! |---|---|
//! | `DEP_GGML_ROOT` | the folder that holds `ggml/` (the patched tree), `gen/` and the objects |
//! | `DEP_GGML_INCLUDE` | ggml's public headers |
//! | `DEP_GGML_PREFIX_HEADER` | include it first (`-include`) in C or C++ that uses those headers |
//! | `DEP_GGML_ARCHIVE` | the static archive |
//! | `DEP_GGML_VERSION` | ggml's version |
//! | `DEP_GGML_PATCHSET` | SHA-256 over the patches alone |
//! | `DEP_GGML_DEFINES` | the defines of every file, `NAME` or `NAME=VALUE`, separated by semicolons |
//! | `DEP_GGML_BACKENDS` | comma-separated: `cpu`, `blas`, `metal`, `metal-sim` |

#![no_std]

#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "generated from C")]
#[allow(clippy::all, clippy::pedantic, rustdoc::all, reason = "generated from C")]
mod bindings {
    #[cfg(not(feature = "buildtime-bindgen"))]
    include!("bindings.rs");
    #[cfg(feature = "buildtime-bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
mod build_info;
pub mod cpu;
pub mod sim;

pub use bindings::*;
pub use build_info::{BUILD, BuildInfo, compiled_hash};
