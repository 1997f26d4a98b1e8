//! Whether the simulated Metal device can be used on this CPU.
//!
//! The device itself is reached like any other, through `ggml_backend_metal_reg`, which gives NULL where it cannot. Its own
//! functions (counters, faults) are looked up by name in its registry.

use core::ffi::c_char;

use crate::cpu::text;

unsafe extern "C" {
    fn ggmlrs_sim_error() -> *const c_char;
}

/// Why the simulated device cannot be used on this CPU. May be called on any.
pub fn error() -> Option<&'static str> {
    // SAFETY: takes nothing; returns NULL or a string literal.
    unsafe { text(ggmlrs_sim_error()) }
}
