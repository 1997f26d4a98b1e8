//! A whole run: every selected case on every selected device, reported as it happens.

use std::io;

use ggml_rs::{Device, DeviceKind};
use indicatif::ProgressBar;

use crate::case::Case;
use crate::outcome::{CaseResult, Tally};
use crate::report::{DeviceInfo, Header, Report};
use crate::runner::{self, Settings, Target};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every case that ran passed, and on every device some ran.
    Passed,
    /// A case failed.
    Failed,
    /// On some device no case ran, which proves nothing about it.
    NothingRan,
}

/// Why a run was broken off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A report could not be written.
    #[error("write the report")]
    Report(#[from] io::Error),
    /// A device could not be used at all.
    #[error(transparent)]
    Device(#[from] ggml_rs::Error),
}

/// What to run.
pub struct Session {
    /// The cases, in order.
    pub cases: Vec<Box<dyn Case>>,
    /// All devices, for numbering them as ggml does.
    pub all_devices: Vec<Device>,
    /// The devices to test.
    pub devices: Vec<Device>,
    /// What shapes every case.
    pub settings: Settings,
}

impl Session {
    /// Runs everything. `bar` is hidden where there is no terminal to draw it on.
    ///
    /// # Errors
    /// When a report cannot be written or a device cannot be opened.
    pub fn run(
        &self,
        reports: &mut [&mut dyn Report],
        bar: &ProgressBar,
    ) -> Result<Verdict, Error> {
        let header = self.header();
        for report in reports.iter_mut() {
            report.begin(&header)?;
        }
        let mut cpu = Target::open(Device::cpu()?)?;
        let mut tallies = Vec::new();
        for (index, &device) in self.all_devices.iter().enumerate() {
            let info = describe(index, device);
            if self.devices.contains(&device) {
                tallies.push(self.run_device(device, &info, &mut cpu, reports, bar)?);
            } else {
                for report in reports.iter_mut() {
                    report.skip_device(&info, skip_reason(device))?;
                }
            }
        }
        let passed = tallies.iter().filter(|tally| tally.is_pass()).count();
        for report in reports.iter_mut() {
            report.finish(passed, tallies.len())?;
        }
        Ok(verdict(&tallies))
    }

    fn header(&self) -> Header {
        Header::new(
            self.settings.seed,
            self.settings.choices.staging,
            self.all_devices.len(),
        )
    }

    fn run_device(
        &self,
        device: Device,
        info: &DeviceInfo,
        cpu: &mut Target,
        reports: &mut [&mut dyn Report],
        bar: &ProgressBar,
    ) -> Result<Tally, Error> {
        let mut target = Target::open(device)?;
        for report in reports.iter_mut() {
            report.begin_device(info)?;
        }
        bar.reset();
        bar.set_length(self.cases.len() as u64);
        let mut tally = Tally::default();
        for case in &self.cases {
            let name = case.name();
            bar.set_message(name.clone());
            // The bar draws at its own pace; a case that ends the process must not outrun it.
            bar.force_draw();
            for report in reports.iter_mut() {
                report.begin_case(&name)?;
            }
            let result = runner::run(&**case, &mut target, cpu, self.settings);
            tally.add(&result);
            bar.suspend(|| end_case(reports, info, &result))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        for report in reports.iter_mut() {
            report.end_device(info, &tally)?;
        }
        Ok(tally)
    }
}

fn end_case(
    reports: &mut [&mut dyn Report],
    info: &DeviceInfo,
    result: &CaseResult,
) -> io::Result<()> {
    reports
        .iter_mut()
        .try_for_each(|report| report.end_case(info, result))
}

/// Upstream's words, and how to have the CPU tested.
pub(crate) fn skip_reason(device: Device) -> &'static str {
    match device.kind() {
        DeviceKind::Cpu => "Skipping CPU backend (-b CPU tests it)",
        _ => "Skipping",
    }
}

pub(crate) fn describe(index: usize, device: Device) -> DeviceInfo {
    DeviceInfo {
        index,
        name: device.name().to_owned(),
        description: device.description().to_owned(),
        registry: device.registry_name().to_owned(),
        memory: device.memory(),
        tensor_api: device.tensor_api(),
    }
}

fn verdict(tallies: &[Tally]) -> Verdict {
    if tallies.iter().any(|tally| !tally.failed().is_empty()) {
        Verdict::Failed
    } else if tallies.is_empty() || !tallies.iter().all(Tally::is_pass) {
        Verdict::NothingRan
    } else {
        Verdict::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, Outcome};

    fn tally(outcomes: &[Outcome]) -> Tally {
        let mut tally = Tally::default();
        for outcome in outcomes {
            tally.add(&CaseResult {
                op: "ADD",
                params: String::new(),
                outcome: outcome.clone(),
                nmse: None,
                hash: None,
                limit: 1e-7,
                kernels: Vec::new(),
                arms: Vec::new(),
            });
        }
        tally
    }

    #[test]
    fn every_tested_device_must_have_run_something() {
        let passed = || tally(&[Outcome::Passed]);
        let unsupported = || tally(&[Outcome::Unsupported("type".into())]);
        let failed = || {
            tally(&[
                Outcome::Passed,
                Outcome::Failed(Failure::Routing("x".into())),
            ])
        };
        assert_eq!(verdict(&[passed(), passed()]), Verdict::Passed);
        assert_eq!(verdict(&[passed(), unsupported()]), Verdict::NothingRan);
        assert_eq!(verdict(&[]), Verdict::NothingRan);
        assert_eq!(verdict(&[failed(), unsupported()]), Verdict::Failed);
    }
}
