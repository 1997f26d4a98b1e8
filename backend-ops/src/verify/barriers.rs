//! The measure of the verifier: every barrier that the cases execute is taken out, one at a time, and must be missed.
//!
//! Nothing is compiled again: the simulated device lets lanes run past a barrier that was removed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use ggml_rs::Device;
use ggml_rs::sim::{Barrier, Detector, Finding, Site, Verifier};
use indicatif::ProgressBar;

use super::known;
use crate::case::{Case, CaseGraph, Choices};
use crate::data::OperandData;
use crate::runner::{Target, generate, prepare};

/// How many cases that execute a barrier are tried, the quickest first.
const TRIES: usize = 24;

/// Why the measure could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device has no verifier.
    #[error("{0} has no verifier; the simulated Metal device has one")]
    NoVerifier(&'static str),
    /// The table could not be written.
    #[error("write the table")]
    Io(#[from] io::Error),
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] ggml_rs::Error),
}

/// What became of one barrier.
#[derive(Clone, Debug)]
pub struct Line {
    /// The barrier.
    pub barrier: Barrier,
    /// What reported that it was missing, and the case; `None` where nothing did.
    pub reported: Option<(&'static str, String)>,
    /// How many cases execute it.
    pub cases: usize,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.barrier.simdgroup {
            true => "simdgroup",
            false => "threadgroup",
        };
        write!(f, "{}:{} {kind} ", self.barrier.file, self.barrier.line)?;
        match &self.reported {
            Some((detector, case)) => write!(f, "reported: {detector}, {case}"),
            None => write!(
                f,
                "NOT REPORTED by the {} quickest of {} cases",
                self.cases.min(TRIES),
                self.cases
            ),
        }
    }
}

/// Takes the measure on one device: how many barriers were reported, of how many that the cases execute.
///
/// # Errors
/// When the device has no verifier or the table cannot be written.
pub fn measure(
    cases: &[Box<dyn Case>],
    device: Device,
    seed: u64,
    bar: &ProgressBar,
    out: &mut dyn Write,
) -> Result<[usize; 2], Error> {
    let verifier = Verifier::of(device).ok_or(Error::NoVerifier(device.name()))?;
    let mut target = Target::open(device)?;
    let executed = executed(cases, &verifier, &mut target, seed, bar);
    bar.set_length(executed.len() as u64);
    bar.reset();
    let (mut reported, total) = (0, executed.len());
    for ((file, line), found) in executed {
        bar.set_message(format!("{file}:{line}"));
        let result = without(&found, cases, &verifier, &mut target, seed);
        reported += usize::from(result.reported.is_some());
        bar.suspend(|| writeln!(out, "{result}"))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    writeln!(
        out,
        "{reported}/{total} barriers that the cases execute are reported when they are missing (simulated)"
    )?;
    Ok([reported, total])
}

/// A barrier, and the cases that execute it with the time that each takes.
struct Executed {
    barrier: Barrier,
    cases: Vec<(Duration, usize)>,
}

fn executed(
    cases: &[Box<dyn Case>],
    verifier: &Verifier,
    target: &mut Target,
    seed: u64,
    bar: &ProgressBar,
) -> BTreeMap<(String, u32), Executed> {
    let mut found = BTreeMap::new();
    bar.set_length(cases.len() as u64);
    for (index, case) in cases.iter().enumerate() {
        bar.set_message(case.name());
        verifier.reset_barriers();
        let started = Instant::now();
        let ran = run(&**case, target, seed);
        let took = started.elapsed();
        if ran {
            for barrier in verifier.barriers_executed() {
                let key = (barrier.file.clone(), barrier.line);
                let entry = found.entry(key).or_insert_with(|| Executed {
                    barrier,
                    cases: Vec::new(),
                });
                entry.cases.push((took, index));
            }
        }
        bar.inc(1);
    }
    // Whatever the kernels do wrong with all barriers is not the missing of one.
    let _ = verifier.take_findings();
    found
}

/// Runs cases without a barrier until one is reported.
fn without(
    found: &Executed,
    cases: &[Box<dyn Case>],
    verifier: &Verifier,
    target: &mut Target,
    seed: u64,
) -> Line {
    let mut tried = found.cases.clone();
    tried.sort();
    let mut reported = None;
    for (_, index) in tried.into_iter().take(TRIES) {
        let case = &*cases[index];
        // What the case shows with the barrier does not count.
        run(case, target, seed);
        let usual = verifier.take_findings();
        verifier.remove_barrier(&found.barrier.file, found.barrier.line);
        run(case, target, seed);
        verifier.restore_barriers();
        let mut new = verifier.take_findings().into_iter();
        let by = new.find(|finding| {
            finding.detector != Detector::OutOfBounds
                && !known::is_known(finding)
                && !usual.iter().any(|usual| is_same(usual, finding))
        });
        if let Some(by) = by {
            reported = Some((name_of(by.detector), case.name()));
            break;
        }
    }
    Line {
        barrier: found.barrier.clone(),
        reported,
        cases: found.cases.len(),
    }
}

/// Whether two findings are the same fault at the same places, in whatever lanes it was seen.
fn is_same(a: &Finding, b: &Finding) -> bool {
    let position = |site: &Option<Site>| site.as_ref().map(|site| site.position.clone());
    a.detector == b.detector
        && a.kernel == b.kernel
        && a.site.position == b.site.position
        && position(&a.other) == position(&b.other)
}

fn name_of(detector: Detector) -> &'static str {
    match detector {
        Detector::Uninitialised => "uninitialised",
        Detector::DivergentBarrier => "divergent barrier",
        _ => "race",
    }
}

/// Whether the device ran the case, rightly or not.
fn run(case: &dyn Case, target: &mut Target, seed: u64) -> bool {
    let Ok(built) = CaseGraph::new(case, Choices::default()) else {
        return false;
    };
    if !target.device().unsupported(&built.graph).is_empty() {
        return false;
    }
    let computed = generate(case, seed).and_then(|data: Vec<OperandData>| {
        let (mut plan, _) = prepare(built, target, &data)?;
        plan.run(target.backend()?)
    });
    // A run that faults has executed barriers too.
    let _ = computed;
    true
}
