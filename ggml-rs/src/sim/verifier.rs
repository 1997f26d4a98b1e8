//! Faults in kernels that no result shows: races, reads of uninitialised memory, accesses out of bounds.
//!
//! With the feature `verifier` the simulated device checks each access to memory that a kernel makes. Plans run as ever,
//! many times slower; then the device is asked what it has found. What it finds holds for the memory model of the Metal
//! Shading Language; nothing is known about a real device. It runs one threadgroup at a time, on one thread: `METAL_SIM_THREADS` may
//! not ask for more.
//!
//! ```
//! use ggml_rs::{Device, sim::Verifier};
//!
//! for device in Device::all()? {
//!     if let Some(verifier) = Verifier::of(device) {
//!         // run plans on the device, then:
//!         for finding in verifier.take_findings() {
//!             println!("{finding}");
//!         }
//!     }
//! }
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod ffi;
mod finding;
mod lines;

use std::ffi::{CStr, CString};
use std::ops::Sub;
use std::path::PathBuf;

use crate::{Output, Plan, device::Device};

use ffi::Functions;
use lines::Lines;

pub use finding::{Access, Address, Detector, Finding, Lane, Position, Site};

/// What orders the lanes of a simdgroup beside barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lockstep {
    /// They run in lockstep around blocks for one lane, and meet in functions such as `simd_sum`: as on known hardware.
    #[default]
    Hardware,
    /// Nothing: what the Metal Shading Language promises.
    Strict,
}

/// In which order things run that no barrier separates: lanes, simdgroups, threadgroups, dispatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The first one first.
    #[default]
    Ascending,
    /// The last one first.
    Reversed,
    /// Drawn anew for each, the same with the same seed.
    Random(u64),
}

/// A barrier in a kernel, where lanes have met.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Barrier {
    /// The kernel file.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// Whether it is a `simdgroup_barrier`, not a `threadgroup_barrier`.
    pub simdgroup: bool,
    /// How often lanes met there since [`Verifier::reset_barriers`].
    pub count: u64,
}

/// Bytes of device memory that kernels have loaded and stored, each access counted, as if there were no cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceBytes {
    /// Loaded.
    pub read: u64,
    /// Stored.
    pub written: u64,
}

impl DeviceBytes {
    /// Both.
    #[must_use]
    pub fn total(self) -> u64 {
        self.read + self.written
    }
}

impl Sub for DeviceBytes {
    type Output = Self;

    /// What was moved between two readings.
    fn sub(self, earlier: Self) -> Self {
        Self {
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

/// The verifier of a simulated device. Its settings hold for all simulated devices of the process that come from the same
/// library.
#[derive(Debug, Clone)]
pub struct Verifier {
    device: Device,
    functions: Functions,
    /// The file that was loaded with the kernels in it.
    module: PathBuf,
}

impl Verifier {
    /// The device's verifier; `None` where the device is not simulated or was built without one.
    #[must_use]
    pub fn of(device: Device) -> Option<Self> {
        let functions = Functions::of(device)?;
        // SAFETY: the function returns text that ends with a NUL and lives as long as the library.
        let name = unsafe { CStr::from_ptr((functions.module)()) };
        let module = match name.to_bytes() {
            [] => std::env::current_exe().unwrap_or_default(),
            _ => PathBuf::from(name.to_string_lossy().into_owned()),
        };
        Some(Self {
            device,
            functions,
            module,
        })
    }

    /// What was found since the last call, oldest first: each kind of fault at each pair of places once. No more than 4096 are kept
    /// between two calls; [`Verifier::lost_findings`] counts what was seen beyond.
    #[must_use]
    pub fn take_findings(&self) -> Vec<Finding> {
        let raw = self.functions.take_findings();
        if raw.is_empty() {
            return Vec::new();
        }
        let lines = Lines::of(&self.module);
        raw.iter()
            .filter_map(|finding| Finding::new(finding, &lines))
            .collect()
    }

    /// How often a fault was seen since the process started that is not among the findings, as there was no room left. If it grows,
    /// more is wrong than the findings say.
    #[must_use]
    pub fn lost_findings(&self) -> u64 {
        self.counted().lost_findings
    }

    /// What kernels have moved since the process started, by all plans on the device together.
    #[must_use]
    pub fn device_bytes(&self) -> DeviceBytes {
        let [read, written] = self.counted().device_bytes;
        DeviceBytes { read, written }
    }

    fn counted(&self) -> super::Raw {
        super::Raw::read(self.device).unwrap_or_default()
    }

    /// Sets what orders the lanes of a simdgroup, for dispatches from now on.
    pub fn set_lockstep(&self, lockstep: Lockstep) {
        // SAFETY: takes any value.
        unsafe { (self.functions.set_strict)(lockstep == Lockstep::Strict) };
    }

    /// Sets the order of what no barrier separates, for dispatches from now on. A correct kernel gives the same results in any.
    pub fn set_order(&self, order: Order) {
        let (order, seed) = match order {
            Order::Ascending => (0, 1),
            Order::Reversed => (1, 1),
            Order::Random(seed) => (2, seed),
        };
        // SAFETY: takes any values.
        unsafe { (self.functions.set_order)(order, seed) };
    }

    /// The barriers at which lanes have met. One that orders no memory (`mem_none`) is not among them if it is a
    /// `simdgroup_barrier`: it does not wait here.
    #[must_use]
    pub fn barriers_executed(&self) -> Vec<Barrier> {
        self.functions
            .barriers()
            .iter()
            .map(|raw| Barrier {
                file: ffi::text(&raw.file),
                line: raw.line,
                simdgroup: raw.is_simdgroup != 0,
                count: raw.count,
            })
            .collect()
    }

    /// Forgets which barriers were executed.
    pub fn reset_barriers(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.functions.barriers_reset)() };
    }

    /// From now on a barrier at this line neither waits nor orders. `file` may be the end of the path, such as
    /// `softmax.metal`.
    ///
    /// # Panics
    /// If `file` contains a NUL.
    pub fn remove_barrier(&self, file: &str, line: u32) {
        let file = CString::new(file).expect("the name of a kernel file has no NUL");
        // SAFETY: the text ends with a NUL, and is copied.
        unsafe { (self.functions.remove_barrier)(file.as_ptr(), line) };
    }

    /// Puts all barriers back.
    pub fn restore_barriers(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.functions.restore_barriers)() };
    }

    /// Which kernel wrote last to byte `byte` of an output, if it was not too long ago: whom to blame for an element that
    /// depends on the order.
    #[must_use]
    pub fn last_writer(&self, plan: &Plan, output: &Output, byte: usize) -> Option<(String, Site)> {
        let address = plan.address_of(output)?.wrapping_add(byte);
        let (kernel, place) = self.functions.last_writer(address)?;
        let site = Site::new(&place, &Lines::of(&self.module))?;
        Some((kernel, site))
    }
}
