//! Which devices a run is about.

use ggml_rs::{Device, DeviceKind};

use super::Error;
use crate::cases::Set;

/// The devices to test: the one named, or all but the CPU, and but an accelerator of some types where the set wants them all.
///
/// # Errors
/// When a device named by `only` or `required` does not exist, or when nothing is left.
pub fn devices(
    all: &[Device],
    only: Option<&str>,
    required: &[String],
    set: Set,
) -> Result<Vec<Device>, Error> {
    for name in required {
        find(all, "--require", name)?;
    }
    if let Some(name) = only {
        return Ok(vec![find(all, "-b", name)?]);
    }
    let tested: Vec<_> = all
        .iter()
        .copied()
        .filter(|device| match device.kind() {
            DeviceKind::Cpu => false,
            DeviceKind::Accelerator => set.is_for_perf() || !set.requires_support(),
            _ => true,
        })
        .collect();
    if tested.is_empty() {
        Err(Error::OnlyCpu {
            reason: ggml_rs::sim::unavailable(),
        })
    } else {
        Ok(tested)
    }
}

/// Refuses what `--tensor on` would otherwise silently not do.
///
/// # Errors
/// When a Metal device among them does not use the tensor API.
pub fn require_tensor_api(devices: &[Device]) -> Result<(), Error> {
    let lacking = devices
        .iter()
        .find(|device| device.tensor_api() == Some(false));
    match lacking {
        Some(device) => Err(Error::NoTensorApi {
            device: device.name(),
        }),
        None => Ok(()),
    }
}

fn find(all: &[Device], flag: &'static str, name: &str) -> Result<Device, Error> {
    all.iter()
        .copied()
        .find(|device| device.name() == name)
        .ok_or_else(|| Error::UnknownDevice {
            flag,
            name: name.to_owned(),
            known: all.iter().map(|device| device.name()).collect(),
            reason: ggml_rs::sim::unavailable(),
        })
}
