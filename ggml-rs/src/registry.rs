//! Which devices exist, decided once per process.
use crate::error::Result;
use std::path::PathBuf;
/// Settings that must be made before the first use of a device.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// Metal's tensor API: forced on or off; `None` leaves it to the device.
    pub tensor_api: Option<bool>,
    /// A backend library to load instead of registering the built-in simulated Metal device.
    pub backend_lib: Option<PathBuf>,
}
impl RegistryOptions {
    /// Creates the devices with these settings.
    /// # Errors
    /// `Error::Device` when devices exist already, the library cannot be loaded or the CPU is too old.
    /// # Safety
    /// `tensor_api` sets an environment variable: no other thread may use the environment meanwhile.
    /// `backend_lib` runs the library's code: it must be a ggml backend of this build.
    pub unsafe fn install(self) -> Result<()> {
        unimplemented!()
    }
}
