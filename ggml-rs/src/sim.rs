//! What the simulated Metal device counts: the work of its kernels, in place of times that would say nothing about a GPU.
//!
//! ```
//! use ggml_rs::{Device, sim::Counters};
//!
//! for device in Device::all()? {
//!     assert_eq!(Counters::read(device).is_some(), device.is_simulated());
//! }
//! # Ok::<(), ggml_rs::Error>(())
//! ```

#[cfg(feature = "verifier")]
mod verifier;

use std::ops::Sub;

use crate::device::Device;

#[cfg(feature = "verifier")]
pub use verifier::{
    Access, Address, Barrier, Detector, DeviceBytes, Finding, Lane, Lockstep, Order, Position,
    Site, Verifier,
};

/// Why this machine has no simulated Metal device although the feature `metal-sim` compiles it in; `None` where it has one,
/// and where it is not compiled in.
#[must_use]
pub fn unavailable() -> Option<&'static str> {
    ggml_sys::sim::error()
}

/// Work done since the process started, by all plans on the device together.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kernels dispatched.
    pub dispatches: u64,
    /// Threadgroups run.
    pub threadgroups: u64,
    /// Threadgroup barriers passed, one a threadgroup.
    pub threadgroup_barriers: u64,
    /// Multiply-adds of simdgroup matrices.
    pub simdgroup_fmas: u64,
    /// Threadgroup memory in bytes, summed over threadgroups.
    pub threadgroup_bytes: u64,
    /// Switches from one simulated thread to another: what the simulation costs.
    pub lane_switches: u64,
    /// Multiply-adds in which a tensor product may round float operands (`relaxed_precision`). Here they are exact: the
    /// count shows what a kernel allows the real device.
    pub relaxed_fmas: u64,
}

/// All that the device counts, as `metal-sim/cpp/device/metal_sim.h` declares it.
#[repr(C)]
#[derive(Default)]
struct Raw {
    counters: Counters,
    /// Bytes that kernels load from device memory and store there: zero without the verifier, so that it alone tells them.
    device_bytes: [u64; 2],
    /// The same of faults that the verifier saw and has not kept.
    lost_findings: u64,
}

impl Raw {
    fn read(device: Device) -> Option<Self> {
        type Read = unsafe extern "C" fn(*mut Raw);
        let mut raw = Self::default();
        // SAFETY: the name and signature of the simulated device's own function, which fills a struct of these fields in
        // their order.
        unsafe { device.function::<Read>(c"metal_sim_counters_read")?(&mut raw) };
        Some(raw)
    }
}

impl Counters {
    /// The device's counters; `None` where the device is not simulated.
    #[must_use]
    pub fn read(device: Device) -> Option<Self> {
        Some(Raw::read(device)?.counters)
    }
}

impl Sub for Counters {
    type Output = Self;

    /// The work done between two readings; never below zero, should something reset the counters in between.
    fn sub(self, earlier: Self) -> Self {
        Self {
            dispatches: self.dispatches.saturating_sub(earlier.dispatches),
            threadgroups: self.threadgroups.saturating_sub(earlier.threadgroups),
            threadgroup_barriers: self
                .threadgroup_barriers
                .saturating_sub(earlier.threadgroup_barriers),
            simdgroup_fmas: self.simdgroup_fmas.saturating_sub(earlier.simdgroup_fmas),
            threadgroup_bytes: self
                .threadgroup_bytes
                .saturating_sub(earlier.threadgroup_bytes),
            lane_switches: self.lane_switches.saturating_sub(earlier.lane_switches),
            relaxed_fmas: self.relaxed_fmas.saturating_sub(earlier.relaxed_fmas),
        }
    }
}
