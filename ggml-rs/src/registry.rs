//! Which devices exist, decided once per process: on the first use of a [`Device`], or before it by
//! [`RegistryOptions::install`].

use std::env;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;

use ggml_sys as sys;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::{logging, runtime, sim};

static DEVICES: OnceCell<Vec<Device>> = OnceCell::new();

/// Every device; the first call creates them with the default options.
///
/// # Errors
/// [`Error::Device`]. A later call tries again.
pub(crate) fn devices() -> Result<&'static [Device]> {
    // A logger may ask for devices.
    let _lines = logging::hold();
    DEVICES
        .get_or_try_init(|| RegistryOptions::default().create())
        .map(Vec::as_slice)
}

/// Settings that take effect when devices are created, so before the first use of a [`Device`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RegistryOptions {
    /// Metal's tensor API, forced on or off through ggml's own `GGML_METAL_TENSOR_ENABLE` and
    /// `GGML_METAL_TENSOR_DISABLE`. `None` leaves both as they are, and the device decides.
    pub tensor_api: Option<bool>,
    /// A backend library to load. The built-in simulated Metal device is then not registered.
    pub backend_lib: Option<PathBuf>,
}

impl RegistryOptions {
    /// Creates the devices with these settings.
    ///
    /// # Errors
    /// [`Error::Device`] when devices exist already, the library is not a backend, or ggml cannot run on
    /// this machine.
    ///
    /// # Safety
    /// With `tensor_api` set, no other thread may read or write environment variables during the call.
    /// With `backend_lib` set, the library's code runs in this process: it must be a backend built from this
    /// crate's ggml.
    pub unsafe fn install(self) -> Result<()> {
        let _lines = logging::hold();
        let mut installed = false;
        DEVICES.get_or_try_init(|| {
            installed = true;
            // SAFETY: the caller vouches for the environment.
            unsafe { self.set_environment() };
            self.create()
        })?;
        if installed {
            return Ok(());
        }
        Err(Error::device(
            "set device options",
            "devices exist already: install options before the first use of one",
        ))
    }

    /// # Safety
    /// No other thread may use the environment meanwhile.
    unsafe fn set_environment(&self) {
        let (enable, disable) = ("GGML_METAL_TENSOR_ENABLE", "GGML_METAL_TENSOR_DISABLE");
        let (set, remove) = match self.tensor_api {
            Some(true) => (enable, disable),
            Some(false) => (disable, enable),
            None => return,
        };
        // SAFETY: the caller vouches for other threads.
        unsafe {
            env::set_var(set, "1");
            env::remove_var(remove);
        }
    }

    fn create(&self) -> Result<Vec<Device>> {
        runtime::ready()?;
        match &self.backend_lib {
            Some(library) => load(library)?,
            None => register_simulated_metal(),
        }
        // SAFETY: the registry exists from here on; indices are below the count.
        let devices = unsafe {
            (0..sys::ggml_backend_dev_count())
                .filter_map(|i| Device::from_raw(sys::ggml_backend_dev_get(i)))
                .collect()
        };
        Ok(devices)
    }
}

/// Loads a backend library and registers its devices.
///
/// A library with a simulated device runs its constructors as it is loaded, so it needs a CPU with AVX2: `install` leaves
/// that to its caller where this build has no simulated device that could tell.
fn load(library: &Path) -> Result<()> {
    let step = || format!("load the backend library {}", library.display());
    // Such libraries hold a simulated device, whose constructors run as it is loaded.
    if let Some(reason) = sim::unavailable() {
        return Err(Error::device(step(), reason));
    }
    let path = library.to_str().and_then(|path| CString::new(path).ok());
    let path =
        path.ok_or_else(|| Error::device(step(), "the path is not UTF-8, or contains a NUL"))?;
    // SAFETY: the path is NUL-terminated; the caller of `install` vouches for the library.
    let registry = unsafe { sys::ggml_backend_load(path.as_ptr()) };
    if registry.is_null() {
        let detail = logging::take_error().unwrap_or_else(|| "it is not a ggml backend".to_owned());
        return Err(Error::device(step(), detail));
    }
    Ok(())
}

/// The simulated Metal device is not among the backends that ggml registers by itself. A CPU that cannot run it has
/// the other devices.
#[cfg(all(feature = "metal-sim", target_os = "linux"))]
fn register_simulated_metal() {
    if sim::unavailable().is_none() {
        // SAFETY: the CPU was checked, and devices are created once.
        unsafe { sys::ggml_backend_register(sys::ggml_backend_metal_reg()) };
    }
}

#[cfg(not(all(feature = "metal-sim", target_os = "linux")))]
fn register_simulated_metal() {}
