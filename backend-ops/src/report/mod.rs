//! What a run prints: for people, and in upstream's machine-readable formats.

mod arms;
mod console;
mod rows;

use std::io;

use ggml_rs::device::Memory;

pub use console::{ConsoleReport, Look};
pub use rows::{Row, RowFormat, RowReport};

use crate::case::Choices;
use crate::judge::outcome::{CaseResult, Tally};

/// What stands at the top of every report: enough to repeat the run and to know what its numbers mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// ggml's version.
    pub ggml_version: String,
    /// Hash over ggml's pin, our patches and our C++.
    pub build_hash: String,
    /// The seed of the test data.
    pub seed: u64,
    /// What is asked of products.
    pub choices: Choices,
    /// How many devices exist.
    pub devices: usize,
}

impl Header {
    /// The header of a run of this build.
    #[must_use]
    pub fn new(seed: u64, choices: Choices, devices: usize) -> Self {
        Self {
            ggml_version: ggml_sys::BUILD.ggml_version.to_owned(),
            build_hash: ggml_sys::BUILD.hash.to_owned(),
            seed,
            choices,
            devices,
        }
    }
}

/// A device as a report names it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Counted from 0.
    pub index: usize,
    /// ggml's name, `MTL0`.
    pub name: String,
    /// ggml's description; a simulated device says so in it.
    pub description: String,
    /// The name of the backend that the device belongs to.
    pub registry: String,
    /// Its memory.
    pub memory: Memory,
    /// Whether kernels use the tensor API; `None` where the device has no such notion.
    pub tensor_api: Option<bool>,
}

/// Receives a run as it happens. A report overrides what it wants to know.
///
/// Every method fails only when the output cannot be written.
pub trait Report {
    /// The run starts.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn begin(&mut self, _header: &Header) -> io::Result<()> {
        Ok(())
    }

    /// A device is left out.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn skip_device(&mut self, _device: &DeviceInfo, _reason: &str) -> io::Result<()> {
        Ok(())
    }

    /// A device's cases follow.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn begin_device(&mut self, _device: &DeviceInfo) -> io::Result<()> {
        Ok(())
    }

    /// A case is about to run. A kernel may well end the process, so a report for people must put the name where a crash
    /// cannot take it back: the last name printed is then the culprit.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn begin_case(&mut self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// The case has run.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn end_case(&mut self, _device: &DeviceInfo, _result: &CaseResult) -> io::Result<()> {
        Ok(())
    }

    /// The device's cases are done.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn end_device(&mut self, _device: &DeviceInfo, _tally: &Tally) -> io::Result<()> {
        Ok(())
    }

    /// The run is over: so many of the tested devices passed.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn finish(&mut self, _passed: usize, _devices: usize) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::judge::outcome::Outcome;

    pub fn header() -> Header {
        Header {
            ggml_version: "0.26.0".into(),
            build_hash: "abc".into(),
            seed: 7,
            choices: Choices::default(),
            devices: 2,
        }
    }

    pub fn device() -> DeviceInfo {
        DeviceInfo {
            index: 1,
            name: "MTL0".into(),
            description: "simulated Metal device".into(),
            registry: "MTL".into(),
            memory: Memory { free: 0, total: 0 },
            tensor_api: Some(false),
        }
    }

    pub fn result(outcome: Outcome) -> CaseResult {
        CaseResult::new("ADD", "m=1".into(), outcome)
    }
}
