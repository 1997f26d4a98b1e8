//! Runs the unit tests of the build script's modules, which cargo would not run by itself.

#[path = "../build/mod.rs"]
#[allow(
    dead_code,
    reason = "the build script's entry points are not called here"
)]
mod build;
