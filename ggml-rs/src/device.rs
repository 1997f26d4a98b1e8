//! Devices.
use crate::{
    backend::Backend,
    error::{Result, Unsupported},
    graph::Graph,
};
/// A device that ggml found. Lives as long as the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device(());
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
    /// An accelerator used together with the CPU (BLAS).
    Accelerator,
    /// Several devices that act as one.
    Meta,
}
/// A device's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Free now, as the device reports it.
    pub free: usize,
    /// In total.
    pub total: usize,
}
impl Device {
    /// Every device, in ggml's order.
    pub fn all() -> Result<Vec<Device>> {
        unimplemented!()
    }
    /// The device of this name; the error lists the names that exist.
    pub fn by_name(name: &str) -> Result<Device> {
        let _ = name;
        unimplemented!()
    }
    /// The CPU.
    pub fn cpu() -> Result<Device> {
        unimplemented!()
    }
    /// A GPU if there is a real one, else the CPU; never a simulated device.
    pub fn best() -> Result<Device> {
        unimplemented!()
    }
    /// ggml's short name: `CPU`, `MTL0`.
    pub fn name(self) -> &'static str {
        unimplemented!()
    }
    /// The description; contains "simulated" for a simulated device.
    pub fn description(self) -> &'static str {
        unimplemented!()
    }
    /// The name of the backend registry it belongs to: `CPU`, `MTL`.
    pub fn registry_name(self) -> &'static str {
        unimplemented!()
    }
    /// What it is.
    pub fn kind(self) -> DeviceKind {
        unimplemented!()
    }
    /// Whether it is a Metal device, real or simulated.
    pub fn is_metal(self) -> bool {
        unimplemented!()
    }
    /// Whether it is simulated.
    pub fn is_simulated(self) -> bool {
        unimplemented!()
    }
    /// Its memory.
    pub fn memory(self) -> Memory {
        unimplemented!()
    }
    /// Whether Metal's tensor API is in use; `None` where there is no such thing.
    pub fn tensor_api(self) -> Option<bool> {
        unimplemented!()
    }
    /// The nodes of `graph` that this device does not run, with reasons; empty when it runs them all.
    pub fn unsupported(self, graph: &Graph) -> Vec<Unsupported> {
        let _ = graph;
        unimplemented!()
    }
    /// Opens a backend on it.
    pub fn open(self) -> Result<Backend> {
        unimplemented!()
    }
}
