//! Backends: a device's command stream.
use crate::{device::Device, error::Result};
/// A stream of work on a device. Unusable after a failed compute: create a new one.
#[derive(Debug)]
pub struct Backend(());
impl Backend {
    /// Opens a backend on `device`.
    pub fn new(device: Device) -> Result<Self> {
        let _ = device;
        unimplemented!()
    }
    /// The device.
    pub fn device(&self) -> Device {
        unimplemented!()
    }
    /// The number of CPU threads, where the device has such a setting; at least 1.
    pub fn set_threads(&mut self, threads: usize) -> Result<()> {
        let _ = threads;
        unimplemented!()
    }
    /// Whether an earlier compute failed.
    pub fn is_poisoned(&self) -> bool {
        unimplemented!()
    }
}
