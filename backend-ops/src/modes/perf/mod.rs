//! Mode `perf`: how long cases take, upstream's way and further.
//!
//! As upstream, a case runs once to warm up and then for at least a second, many times in one submission, and its line says
//! the mean time of a run with its GFLOPS, or its GB/s where it has no flops. Beyond that: the stagings of OUT_PROD take
//! turns ([`rounds`]), median and spread over the rounds are told, and what OUT_PROD does besides its product ([`parts`]).
//!
//! A simulated device has no times that would mean anything. Its lines hold counters of one run, and cases that would
//! take it minutes are left out by name.

pub mod blas;
pub mod cases;
mod measure;
pub mod parts;
mod report;
pub mod rounds;
pub mod staging;
pub mod stats;
pub mod work;

use std::io::{self, Write};

use ggml_rs::{Device, Route, Staging};

use crate::case::{Case, Choices};
use crate::engine::runner::{Settings, Target};
use crate::engine::session::{Error, Verdict, describe, skip_reason};
use crate::report::{ConsoleReport, DeviceInfo, Header, Report, RowFormat, RowReport};

pub use measure::{Measured, Outcome};

/// What to measure.
pub struct Perf {
    /// The cases, in order.
    pub cases: Vec<Box<dyn Case>>,
    /// All devices, for numbering them as ggml does.
    pub all_devices: Vec<Device>,
    /// The devices to measure.
    pub devices: Vec<Device>,
    /// Seed of the data, and what is asked of the ops that have a choice.
    pub settings: Settings,
}

/// Where results go.
pub struct Sinks<'a> {
    /// Lines for people.
    pub people: ConsoleReport<'a, Box<dyn Write + 'a>>,
    /// Rows for programs.
    pub rows: Option<RowReport<Box<dyn Write + 'a>>>,
}

impl<'a> Sinks<'a> {
    /// Lines for people to `people`, and rows of a format to `rows`.
    #[must_use]
    pub fn new(
        people: ConsoleReport<'a, Box<dyn Write + 'a>>,
        rows: Option<(Box<dyn Write + 'a>, RowFormat)>,
    ) -> Self {
        Self {
            people,
            rows: rows.map(|(out, format)| RowReport::new(out, format)),
        }
    }

    fn begin(&mut self, header: &Header) -> io::Result<()> {
        self.people.begin(header)?;
        self.rows.as_mut().map_or(Ok(()), |rows| rows.begin(header))
    }

    fn line(&mut self, line: impl std::fmt::Display) -> io::Result<()> {
        let out = self.people.writer();
        writeln!(out, "{line}")?;
        out.flush()
    }
}

/// The arm of OUT_PROD's direct route.
pub const DIRECT: &str = "direct";

/// How a case is measured: under the name of an arm where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The name; `None` for the only one.
    pub name: Option<&'static str>,
    /// What it asks for.
    pub choices: Choices,
}

/// The arms of a case: both stagings of an OUT_PROD on Metal, and its direct route, unless one is asked for, else what is asked
/// for.
#[must_use]
pub fn arms(case: &dyn Case, is_metal: bool, asked: Choices) -> Vec<Arm> {
    let arm = |name, staging, route| Arm {
        name: Some(name),
        choices: Choices {
            staging: Some(staging),
            route,
        },
    };
    if asked != Choices::default() || !is_metal || case.op() != "OUT_PROD" {
        return vec![Arm {
            name: None,
            choices: asked,
        }];
    }
    vec![
        arm("float", Staging::Float, None),
        arm("half", Staging::Half, None),
        arm(DIRECT, Staging::Float, Some(Route::Direct)),
    ]
}

impl Perf {
    /// Measures everything.
    ///
    /// # Errors
    /// When a report cannot be written or a device cannot be opened.
    pub fn run(&self, sinks: &mut Sinks<'_>) -> Result<Verdict, Error> {
        self.each_device(sinks, |sinks, target, info| {
            let mut tally = Tally::default();
            for case in &self.cases {
                self.run_case(&**case, target, info, sinks, &mut tally)?;
            }
            sinks.line(tally)?;
            Ok(tally.verdict())
        })
    }

    /// The table of stagings for the cases that are in it.
    ///
    /// # Errors
    /// As [`Perf::run`].
    pub fn run_staging(&self, sinks: &mut Sinks<'_>) -> Result<Verdict, Error> {
        let chosen: Vec<String> = self.cases.iter().map(|case| case.name()).collect();
        let mut cases = staging::cases();
        cases.retain(|case| chosen.contains(&case.name()));
        self.each_device(sinks, |sinks, target, info| {
            staging::run(&cases, target, info, self.settings, sinks)
        })
    }

    /// OUT_PROD beside the machine's BLAS, for the cases that are in that set.
    ///
    /// # Errors
    /// As [`Perf::run`].
    pub fn run_blas(&self, blas: Device, sinks: &mut Sinks<'_>) -> Result<Verdict, Error> {
        blas::run(self, blas, sinks)
    }

    /// Opens each device, and tells of those that are left out.
    fn each_device(
        &self,
        sinks: &mut Sinks<'_>,
        mut run: impl FnMut(&mut Sinks<'_>, &mut Target, &DeviceInfo) -> Result<Verdict, Error>,
    ) -> Result<Verdict, Error> {
        sinks.begin(&Header::new(
            self.settings.seed,
            self.settings.choices,
            self.all_devices.len(),
        ))?;
        let mut verdicts = Vec::new();
        for (index, &device) in self.all_devices.iter().enumerate() {
            let info = describe(index, device);
            if self.devices.contains(&device) {
                let mut target = Target::open(device)?;
                sinks.people.begin_device(&info)?;
                verdicts.push(run(sinks, &mut target, &info)?);
            } else {
                sinks.people.skip_device(&info, skip_reason(device))?;
            }
        }
        Ok(worst(&verdicts))
    }

    fn run_case(
        &self,
        case: &dyn Case,
        target: &mut Target,
        info: &DeviceInfo,
        sinks: &mut Sinks<'_>,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let arms = arms(case, target.device().is_metal(), self.settings.choices);
        // The name is out before the case runs: it may take its time, or the process with it.
        write!(sinks.people.writer(), "  {}: ", case.name()).map_err(Error::Report)?;
        sinks.people.writer().flush()?;
        let outcome = measure::measure(case, &arms, target, self.settings.seed);
        tally.add(&outcome);
        for line in report::lines(case, info, &outcome) {
            sinks.line(line)?;
        }
        if let Some(rows) = &mut sinks.rows {
            for (row, extra) in report::rows(case, info, &outcome) {
                rows.write_with(&row, &extra)?;
            }
        }
        Ok(())
    }
}

fn worst(verdicts: &[Verdict]) -> Verdict {
    let any = |verdict| verdicts.contains(&verdict);
    if any(Verdict::Failed) {
        Verdict::Failed
    } else if verdicts.is_empty() || any(Verdict::NothingRan) {
        Verdict::NothingRan
    } else {
        Verdict::Passed
    }
}

/// What became of a device's cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    measured: usize,
    unsupported: usize,
    too_large: usize,
    failed: usize,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Measured { .. } => &mut self.measured,
            Outcome::Unsupported(_) => &mut self.unsupported,
            Outcome::TooLarge(_) => &mut self.too_large,
            Outcome::Failed(_) => &mut self.failed,
        } += 1;
    }

    fn verdict(self) -> Verdict {
        match self {
            Self { failed: 1.., .. } => Verdict::Failed,
            Self { measured: 0, .. } => Verdict::NothingRan,
            _ => Verdict::Passed,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "  measured {}, unsupported {}, too large to simulate {}, failed {}",
            self.measured, self.unsupported, self.too_large, self.failed
        )
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType::F32;

    use super::*;
    use crate::cases::{MulMat, OutProd};

    #[test]
    fn stagings_and_routes_of_an_out_prod_are_measured_unless_one_is_asked_for() {
        let case = OutProd::new(F32, F32, [32, 32, 32]);
        let names = |metal, asked| -> Vec<_> {
            let arms = arms(&case, metal, asked);
            arms.iter().map(|arm| arm.name).collect()
        };
        let none = Choices::default();
        assert_eq!(
            names(true, none),
            [Some("float"), Some("half"), Some("direct")]
        );
        assert_eq!(names(false, none), [None]);
        let half = Choices {
            staging: Some(Staging::Half),
            ..none
        };
        assert_eq!(names(true, half), [None]);
        let direct = Choices {
            route: Some(Route::Direct),
            ..none
        };
        assert_eq!(names(true, direct), [None]);
        assert_eq!(arms(&case, true, half)[0].choices, half);
        let product = MulMat::new(F32, [32, 32, 32]);
        assert_eq!(arms(&product, true, none).len(), 1);
    }

    #[test]
    fn a_run_without_measurements_is_no_pass() {
        let mut tally = Tally::default();
        tally.add(&Outcome::Unsupported("type".into()));
        tally.add(&Outcome::TooLarge("size".into()));
        assert_eq!(tally.verdict(), Verdict::NothingRan);
        tally.add(&Outcome::Measured {
            flops: None,
            bytes: 1,
            arms: Vec::new(),
            parts: None,
        });
        assert_eq!(tally.verdict(), Verdict::Passed);
        tally.add(&Outcome::Failed("fault".into()));
        assert_eq!(tally.verdict(), Verdict::Failed);
        assert_eq!(
            worst(&[Verdict::Passed, Verdict::NothingRan]),
            Verdict::NothingRan
        );
    }
}
