//! What a run does instead of comparing results with the reference, a file or a folder for each mode.

#[cfg(feature = "verifier")]
pub mod barriers;
pub mod grad;
pub mod perf;
pub mod support;
pub mod threads;
