//! Whether the simulated Metal device can be used on this CPU.
//!
//! The device itself is reached like any other, through `ggml_backend_metal_reg`, which gives NULL where it cannot. Its own
//! functions (counters, faults) are looked up by name in its registry.

/// Why the simulated device cannot be used on this CPU; `None` where it can, and where it is not compiled in. May be called
/// on any CPU.
pub fn error() -> Option<&'static str> {
    #[cfg(ggml_metal_sim)]
    {
        unsafe extern "C" {
            fn ggmlrs_sim_error() -> *const core::ffi::c_char;
        }
        // SAFETY: takes nothing; returns NULL or a string literal.
        unsafe { crate::cpu::text(ggmlrs_sim_error()) }
    }
    #[cfg(not(ggml_metal_sim))]
    None
}
