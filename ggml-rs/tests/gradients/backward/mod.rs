//! Gradients against differences of the forward, where ggml's own backward is wrong, aborts or is missing; what a backward refuses;
//! recomputing; optimizer steps.

mod arithmetic;
mod elements;
mod experts;
mod layouts;
mod normalize;
mod optimizer;
mod recompute;
mod refused;
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
mod simulated;
mod slopes;
