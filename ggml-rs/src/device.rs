//! Devices: what ggml can compute on.
//!
//! ```
//! use ggml_rs::Device;
//! for device in Device::all()? {
//!     println!("{}: {} ({:?})", device.name(), device.description(), device.kind());
//! }
//! assert_eq!(Device::cpu()?.name(), "CPU");
//! assert!(Device::by_name("MTL9").is_err());
//! # Ok::<(), ggml_rs::Error>(())
//! ```

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::mem::transmute_copy;
use std::ptr::NonNull;

use ggml_sys as sys;
use once_cell::sync::OnceCell;

use crate::backend::Backend;
use crate::error::{Error, Result, Unsupported};
use crate::graph::Graph;
use crate::{registry, sim, support};

/// A device that ggml found. It exists as long as the process, so this is a plain value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(NonNull<sys::ggml_backend_device>);

// SAFETY: ggml's devices are created once, never freed, and only read through this handle; what changes
// behind it (free memory, a library of pipelines) is synchronised by the backends.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The CPU.
    Cpu,
    /// A GPU with memory of its own.
    Gpu,
    /// A GPU that shares the host's memory.
    IntegratedGpu,
    /// An accelerator used together with the CPU, such as BLAS.
    Accelerator,
    /// Several devices that act as one, or a kind that this crate does not know.
    Other,
}

/// A device's memory in bytes, as the device reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Free now.
    pub free: usize,
    /// In total.
    pub total: usize,
}

impl Device {
    /// Every device, in ggml's order.
    ///
    /// # Errors
    /// [`Error::Device`] when ggml cannot run on this machine.
    #[doc(alias = "ggml_backend_dev_get")]
    pub fn all() -> Result<Vec<Self>> {
        Ok(registry::devices()?.to_vec())
    }

    /// The device of this name.
    ///
    /// # Errors
    /// [`Error::Device`], listing the devices that exist.
    #[doc(alias = "ggml_backend_dev_by_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        let devices = registry::devices()?;
        devices
            .iter()
            .copied()
            .find(|device| device.name() == name)
            .ok_or_else(|| {
                let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
                let mut detail = format!("this machine has: {}", names.join(", "));
                if let Some(reason) = sim::unavailable() {
                    detail.push_str("; ");
                    detail.push_str(reason);
                }
                Error::device(format!("find device `{name}`"), detail)
            })
    }

    /// The CPU.
    ///
    /// # Errors
    /// [`Error::Device`] when ggml cannot run on this machine.
    pub fn cpu() -> Result<Self> {
        Self::first(|device| device.kind() == DeviceKind::Cpu)?
            .ok_or_else(|| Error::device("find the CPU", "ggml was built without its CPU backend"))
    }

    /// A GPU if there is one, else the CPU. Never a simulated device.
    ///
    /// # Errors
    /// [`Error::Device`] when ggml cannot run on this machine.
    pub fn best() -> Result<Self> {
        let gpu =
            |device: Self| matches!(device.kind(), DeviceKind::Gpu | DeviceKind::IntegratedGpu);
        match Self::first(|device| gpu(device) && !device.is_simulated())? {
            Some(device) => Ok(device),
            None => Self::cpu(),
        }
    }

    fn first(wanted: impl Fn(Self) -> bool) -> Result<Option<Self>> {
        Ok(registry::devices()?
            .iter()
            .copied()
            .find(|&device| wanted(device)))
    }

    /// ggml's short name: `CPU`, `MTL0`.
    #[doc(alias = "ggml_backend_dev_name")]
    pub fn name(self) -> &'static str {
        // SAFETY: the device lives as long as the process, and so do its strings.
        unsafe { static_text(sys::ggml_backend_dev_name(self.as_ptr())) }
    }

    /// What the hardware calls itself. Contains "simulated" for a simulated device, and for the CPU, in parentheses, what
    /// the code in use is compiled for: `(x86-64-v4)`.
    #[doc(alias = "ggml_backend_dev_description")]
    pub fn description(self) -> &'static str {
        static CPU: OnceCell<String> = OnceCell::new();
        // SAFETY: as in `name`.
        let hardware = unsafe { static_text(sys::ggml_backend_dev_description(self.as_ptr())) };
        match sys::cpu::level() {
            // ggml has one CPU device.
            Some(level) if self.kind() == DeviceKind::Cpu => {
                CPU.get_or_init(|| format!("{} ({level})", hardware.trim_end()))
            }
            _ => hardware,
        }
    }

    /// The name of the backend that it belongs to: `CPU`, `MTL`.
    #[doc(alias = "ggml_backend_reg_name")]
    pub fn registry_name(self) -> &'static str {
        // SAFETY: as in `name`; every registered device has a registry.
        unsafe { static_text(sys::ggml_backend_reg_name(self.registry())) }
    }

    /// What it is.
    #[doc(alias = "ggml_backend_dev_type")]
    pub fn kind(self) -> DeviceKind {
        // SAFETY: the device lives as long as the process.
        match unsafe { sys::ggml_backend_dev_type(self.as_ptr()) } {
            sys::GGML_BACKEND_DEVICE_TYPE_CPU => DeviceKind::Cpu,
            sys::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceKind::Gpu,
            sys::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceKind::IntegratedGpu,
            sys::GGML_BACKEND_DEVICE_TYPE_ACCEL => DeviceKind::Accelerator,
            _ => DeviceKind::Other,
        }
    }

    /// Whether it is a Metal device, real or simulated.
    pub fn is_metal(self) -> bool {
        self.registry_name() == "MTL"
    }

    /// Whether it is a simulation. Nothing measured on it says anything about hardware.
    pub fn is_simulated(self) -> bool {
        self.description().contains("simulated")
    }

    /// Its memory.
    #[doc(alias = "ggml_backend_dev_memory")]
    pub fn memory(self) -> Memory {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the device lives as long as the process; both pointers are to live variables.
        unsafe { sys::ggml_backend_dev_memory(self.as_ptr(), &mut free, &mut total) };
        Memory { free, total }
    }

    /// Whether Metal's tensor API is in use; `None` on devices that have no such thing.
    ///
    /// Where it is, matrix products run on another kernel, which reads `b` in place. MUL_MAT stages `a` in half there;
    /// OUT_PROD stages it as asked (see [`Tensor::set_staging`](crate::Tensor::set_staging)).
    pub fn tensor_api(self) -> Option<bool> {
        type HasTensor = unsafe extern "C" fn(sys::ggml_backend_dev_t) -> bool;
        // SAFETY: the name and signature that our patch gives the Metal backend, and a device of it.
        unsafe {
            self.function::<HasTensor>(c"ggml_metal_has_tensor")
                .map(|ask| ask(self.as_ptr()))
        }
    }

    /// The nodes of `graph` that this device does not run, with reasons. Empty if it runs them all.
    #[doc(alias = "ggml_backend_dev_supports_op")]
    pub fn unsupported(self, graph: &Graph) -> Vec<Unsupported> {
        // SAFETY: the graph keeps its tensors alive.
        graph
            .tensors()
            .iter()
            .filter_map(|&tensor| unsafe { support::check(self, tensor) })
            .collect()
    }

    /// Opens a backend on it.
    ///
    /// # Errors
    /// As [`Backend::new`].
    pub fn open(self) -> Result<Backend> {
        Backend::new(self)
    }

    /// Where tensors for this device are allocated.
    pub(crate) fn buffer_type(self) -> sys::ggml_backend_buffer_type_t {
        // SAFETY: the device lives as long as the process.
        unsafe { sys::ggml_backend_dev_buffer_type(self.as_ptr()) }
    }

    /// Whether it can use buffers of this type.
    pub(crate) fn takes(self, kind: sys::ggml_backend_buffer_type_t) -> bool {
        // SAFETY: device and buffer type live as long as the process.
        unsafe { sys::ggml_backend_dev_supports_buft(self.as_ptr(), kind) }
    }

    pub(crate) fn as_ptr(self) -> sys::ggml_backend_dev_t {
        self.0.as_ptr()
    }

    fn registry(self) -> sys::ggml_backend_reg_t {
        // SAFETY: the device lives as long as the process.
        unsafe { sys::ggml_backend_dev_backend_reg(self.as_ptr()) }
    }

    /// A function that the device's backend publishes by name.
    ///
    /// # Safety
    /// `F` must be a function pointer type with the signature that the backend gives this name.
    pub(crate) unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the registry lives as long as the process, the name is NUL-terminated.
        let function =
            unsafe { sys::ggml_backend_reg_get_proc_address(self.registry(), name.as_ptr()) };
        // SAFETY: the pointer is not null, and the caller vouches for its type.
        (!function.is_null()).then(|| unsafe { transmute_copy(&function) })
    }

    /// # Safety
    /// `device` must be a registered device.
    pub(crate) unsafe fn from_raw(device: sys::ggml_backend_dev_t) -> Option<Self> {
        NonNull::new(device).map(Self)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.name(), self.description())
    }
}

/// # Safety
/// `chars` must be NUL-terminated and live as long as the process.
unsafe fn static_text(chars: *const c_char) -> &'static str {
    // SAFETY: the caller vouches for the string.
    unsafe { CStr::from_ptr(chars) }
        .to_str()
        .unwrap_or("(not UTF-8)")
}
