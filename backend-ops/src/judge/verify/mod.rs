//! Cases under the verifier of the simulated device: what no result shows.
//!
//! A case runs twice, in ascending and in reversed order of everything that no barrier separates. It fails when the verifier
//! found something in either run that is not known (`known.rs`, docs/findings.md), and when the two results differ in a bit.
//! Without the feature `verifier` the device has no verifier, and to ask for it is an error.

#[cfg(feature = "verifier")]
mod checked;
#[cfg(feature = "verifier")]
pub(crate) mod known;

#[cfg(feature = "verifier")]
pub(crate) use checked::compute;

use clap::ValueEnum;
use ggml_rs::Device;

/// What orders the lanes of a simdgroup beside barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rules {
    /// Lanes keep step around blocks for one lane and meet in simd functions, as on known hardware
    Hardware,
    /// Nothing but barriers, as the Metal Shading Language promises
    Strict,
}

/// What to say where there is no verifier.
pub const MISSING: &str = "this build has no verifier; build with --features verifier";

/// Whether this build has one.
#[must_use]
pub fn is_built_in() -> bool {
    cfg!(feature = "verifier")
}

/// A device is to be verified that cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0} has no verifier; the simulated Metal device has one (name it with -b)")]
pub struct NoVerifier(pub String);

/// Refuses devices without a verifier, before any case runs.
///
/// # Errors
/// Names the first.
pub fn require(devices: &[Device]) -> Result<(), NoVerifier> {
    match devices.iter().find(|&&device| !has_verifier(device)) {
        Some(device) => Err(NoVerifier(device.name().to_owned())),
        None => Ok(()),
    }
}

#[cfg(feature = "verifier")]
fn has_verifier(device: Device) -> bool {
    ggml_rs::sim::Verifier::of(device).is_some()
}

#[cfg(not(feature = "verifier"))]
fn has_verifier(_: Device) -> bool {
    false
}
