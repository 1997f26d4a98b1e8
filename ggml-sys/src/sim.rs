//! The simulated Metal device: counters and faults.
//!
//! The device itself is reached like any other, through `ggml_backend_metal_reg`, which gives NULL where [`error`] says
//! that this CPU cannot run it. These functions are metal-sim's own and
//! exist only where it is compiled in.

use core::ffi::c_char;

use crate::cpu::text;

/// What the simulated device did since the last reset.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the C name")]
pub struct metal_sim_counters {
    /// Kernels dispatched.
    pub dispatches: u64,
    /// Threadgroups run.
    pub threadgroups: u64,
    /// Threadgroup barriers passed.
    pub threadgroup_barriers: u64,
    /// Fused multiply-adds of simdgroup matrices.
    pub simdgroup_fmas: u64,
    /// Threadgroup memory set, in bytes, summed over threadgroups.
    pub threadgroup_bytes: u64,
    /// Switches from one simulated thread to another.
    pub lane_switches: u64,
}

unsafe extern "C-unwind" {
    /// Sets all counters to zero.
    #[link_name = "ggmlrs_metal_sim_counters_reset"]
    pub fn metal_sim_counters_reset();
    /// Copies the counters.
    #[link_name = "ggmlrs_metal_sim_counters_read"]
    pub fn metal_sim_counters_read(counters: *mut metal_sim_counters);
    /// The last fault as text: kernel, lane and what happened. Empty when there was none; valid until the next fault.
    #[link_name = "ggmlrs_metal_sim_last_fault"]
    pub fn metal_sim_last_fault() -> *const c_char;
    /// Forgets the last fault.
    #[link_name = "ggmlrs_metal_sim_fault_clear"]
    pub fn metal_sim_fault_clear();
}

unsafe extern "C" {
    fn ggmlrs_sim_error() -> *const c_char;
}

/// Why the simulated device cannot be used on this CPU. May be called on any; the other functions of this module may
/// not where there is an error.
pub fn error() -> Option<&'static str> {
    // SAFETY: takes nothing; returns NULL or a string literal.
    unsafe { text(ggmlrs_sim_error()) }
}
