//! A whole run: every selected case on every selected device, reported as it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use ggml_rs::{Device, DeviceKind};
use indicatif::ProgressBar;

use crate::case::{Case, cost};
use crate::engine::bisect;
use crate::engine::pool::{self, Event, Recipe, Worker};
use crate::engine::runner::{self, Settings, Target, cores};
use crate::judge::outcome::{CaseResult, Failure, Outcome, Reduced, Tally};
use crate::report::{DeviceInfo, Header, Report};

/// More processes than this gain little, and each holds the operands of a case.
const MOST_WORKERS: usize = 8;

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
    /// No worker process could be had.
    #[error(transparent)]
    Workers(#[from] pool::Error),
    /// The workers ended, and cases have no result.
    #[error("{reported} of {cases} cases have a result: run again with -j 1")]
    Lost {
        /// Cases that were reported.
        reported: usize,
        /// Cases that there are.
        cases: usize,
    },
}

/// Worker processes, for a program that can be started as one.
#[derive(Clone, Debug)]
pub struct Workers {
    /// How many; `None`: as many as the device has use for.
    pub count: Option<usize>,
    /// This program with the arguments of a worker; the device's name and the number of threads follow.
    pub recipe: Recipe,
}

impl Workers {
    /// A worker for each core, where cases are computed on the CPU; one for a GPU, of which there is one.
    fn count(&self, device: Device, cases: usize) -> usize {
        let on_gpu = device.kind() != DeviceKind::Cpu && !device.is_simulated();
        let default = if on_gpu { 1 } else { cores().min(MOST_WORKERS) };
        self.count.unwrap_or(default).min(cases).max(1)
    }

    fn recipe(&self, device: Device, count: usize) -> Recipe {
        let threads = (cores() / count).max(1);
        let mut recipe = self.recipe.clone();
        recipe.args.push(device.name().to_owned());
        recipe.args.push(threads.to_string());
        Recipe { threads, ..recipe }
    }
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
    /// Where cases run; `None`: in this process, which ends if one of them ends it.
    pub workers: Option<Workers>,
    /// Whether to look for the smallest form of failing cases: of the first of each op.
    pub bisect: bool,
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
        let mut tallies = Vec::new();
        for (index, &device) in self.all_devices.iter().enumerate() {
            let info = describe(index, device);
            if self.devices.contains(&device) {
                tallies.push(self.run_device(device, &info, reports, bar)?);
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
            self.settings.choices,
            self.all_devices.len(),
        )
    }

    fn run_device(
        &self,
        device: Device,
        info: &DeviceInfo,
        reports: &mut [&mut dyn Report],
        bar: &ProgressBar,
    ) -> Result<Tally, Error> {
        let mut place = match &self.workers {
            None => Place::Here(Here::open(device, self.settings)?),
            Some(workers) => {
                let count = workers.count(device, self.cases.len());
                Place::There(There {
                    recipe: workers.recipe(device, count),
                    count,
                    worker: None,
                })
            }
        };
        for report in reports.iter_mut() {
            report.begin_device(info)?;
        }
        bar.reset();
        bar.set_length(self.cases.len() as u64);
        let mut progress = Progress {
            info,
            reports,
            bar,
            tally: Tally::default(),
            failed: BTreeMap::new(),
        };
        match &mut place {
            Place::Here(here) => self.run_here(here, &mut progress)?,
            Place::There(there) => self.run_there(there, &mut progress)?,
        }
        if self.bisect {
            self.reduce(&mut place, &mut progress)?;
        }
        bar.finish_and_clear();
        let tally = progress.tally;
        for report in reports.iter_mut() {
            report.end_device(info, &tally)?;
        }
        Ok(tally)
    }

    fn run_here(&self, here: &mut Here, progress: &mut Progress<'_, '_>) -> Result<(), Error> {
        for (index, case) in self.cases.iter().enumerate() {
            let name = case.name();
            progress.bar.set_message(name.clone());
            // The bar draws at its own pace; a case that ends the process must not outrun it.
            progress.bar.force_draw();
            progress.begin(&name)?;
            let result = here.run(&**case);
            progress.bar.inc(1);
            progress.end(index, &result)?;
        }
        Ok(())
    }

    /// Results come as they please and are reported in the order of the cases.
    fn run_there(&self, there: &There, progress: &mut Progress<'_, '_>) -> Result<(), Error> {
        let names: Vec<_> = self.cases.iter().map(|case| case.name()).collect();
        let costs: Vec<_> = (self.cases.iter()).map(|case| cost(&**case)).collect();
        let mut early = BTreeMap::new();
        let mut next = 0;
        pool::run(&there.recipe, there.count, &names, &costs, |event| {
            match event {
                Event::Taken(index) => progress.bar.set_message(names[index].clone()),
                Event::Failed(error) => return Err(Error::from(error)),
                Event::Done(index, answer) => {
                    progress.bar.inc(1);
                    early.insert(index, named(&*self.cases[index], *answer));
                    while let Some(result) = early.remove(&next) {
                        progress.begin(&names[next])?;
                        progress.end(next, &result)?;
                        next += 1;
                    }
                }
            }
            Ok::<(), Error>(())
        })?;
        // Fewer results would be a smaller total, and a pass.
        match names.len() {
            cases if cases == next => Ok(()),
            cases => Err(Error::Lost {
                reported: next,
                cases,
            }),
        }
    }

    /// Looks for smaller forms of the first failing case of each op.
    fn reduce(&self, place: &mut Place, progress: &mut Progress<'_, '_>) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        for (index, failure) in std::mem::take(&mut progress.failed) {
            let case = &*self.cases[index];
            if !seen.insert(case.op()) {
                continue;
            }
            let mut smallest = (case.name(), failure.to_string());
            let found = bisect::search(case, |form| {
                progress
                    .bar
                    .set_message(format!("smaller: {}", form.name()));
                let outcome = place.run(form)?.outcome;
                let Outcome::Failed(other) = outcome else {
                    return Ok(false);
                };
                let alike = other.kind() == failure.kind();
                if alike {
                    smallest = (form.name(), other.to_string());
                }
                Ok::<_, Error>(alike)
            })?;
            progress.tally.add_reduced(Reduced {
                case: case.name(),
                smallest: smallest.0,
                failure: smallest.1,
                runs: found.runs,
                cut_short: found.cut_short,
            });
        }
        Ok(())
    }
}

/// Where a device's cases run.
enum Place {
    Here(Here),
    There(There),
}

impl Place {
    fn run(&mut self, case: &dyn Case) -> Result<CaseResult, Error> {
        match self {
            Self::Here(here) => Ok(here.run(case)),
            Self::There(there) => there.run(case),
        }
    }
}

/// In this process.
struct Here {
    target: Target,
    cpu: Target,
    settings: Settings,
}

impl Here {
    fn open(device: Device, settings: Settings) -> ggml_rs::Result<Self> {
        Ok(Self {
            target: Target::open(device)?,
            cpu: Target::open(Device::cpu()?)?,
            settings,
        })
    }

    fn run(&mut self, case: &dyn Case) -> CaseResult {
        runner::run(case, &mut self.target, &mut self.cpu, self.settings)
    }
}

/// In worker processes: many for the list of cases, one for what is found out afterwards.
struct There {
    recipe: Recipe,
    count: usize,
    worker: Option<Worker>,
}

impl There {
    fn run(&mut self, case: &dyn Case) -> Result<CaseResult, Error> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(&self.recipe)?,
        };
        let answer = worker.run(&case.name());
        if answer.is_ok() {
            self.worker = Some(worker);
        }
        Ok(named(case, answer))
    }
}

/// A worker's answer as the case's result: where it died, that is the result.
fn named(case: &dyn Case, answer: Result<CaseResult, String>) -> CaseResult {
    let died = |how| CaseResult::new("", String::new(), Outcome::Failed(Failure::Crashed(how)));
    CaseResult {
        op: case.op(),
        params: case.params(),
        ..answer.unwrap_or_else(died)
    }
}

/// A device's run so far, and those who want to know.
struct Progress<'r, 'd> {
    info: &'r DeviceInfo,
    reports: &'r mut [&'d mut dyn Report],
    bar: &'r ProgressBar,
    tally: Tally,
    /// By the place of the case.
    failed: BTreeMap<usize, Failure>,
}

impl Progress<'_, '_> {
    fn begin(&mut self, name: &str) -> io::Result<()> {
        let mut reports = self.reports.iter_mut();
        reports.try_for_each(|report| report.begin_case(name))
    }

    fn end(&mut self, index: usize, result: &CaseResult) -> io::Result<()> {
        self.tally.add(result);
        if let Outcome::Failed(failure) = &result.outcome {
            self.failed.insert(index, failure.clone());
        }
        let (bar, info, reports) = (self.bar, self.info, &mut *self.reports);
        bar.suspend(|| {
            reports
                .iter_mut()
                .try_for_each(|report| report.end_case(info, result))
        })
    }
}

/// Upstream's words, and how to have such a device tested.
pub(crate) fn skip_reason(device: Device) -> &'static str {
    match device.kind() {
        DeviceKind::Cpu => "Skipping CPU backend (-b CPU tests it)",
        DeviceKind::Accelerator => "Skipping (-b with its name tests it)",
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

    fn tally(outcomes: &[Outcome]) -> Tally {
        let mut tally = Tally::default();
        for outcome in outcomes {
            tally.add(&CaseResult::new("ADD", String::new(), outcome.clone()));
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
