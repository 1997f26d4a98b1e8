//! Mode `barriers`, the measure of the verifier: every barrier that the cases execute is taken out, one at a time, and must be missed.
//!
//! Nothing is compiled again: the simulated device lets lanes run past a barrier that was removed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use ggml_rs::Device;
use ggml_rs::sim::{Barrier, Detector, Finding, Lockstep, Order, Site, Verifier};
use indicatif::ProgressBar;

use crate::case::{Case, CaseGraph, Choices};
use crate::data::OperandData;
use crate::engine::runner::{self, Settings, Target, generate, prepare};
use crate::judge::outcome::Outcome;
use crate::judge::verify::{NoVerifier, known};

/// How many cases that execute a barrier are tried at most.
const TRIES: usize = 48;

/// Why the measure could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device has no verifier.
    #[error(transparent)]
    NoVerifier(#[from] NoVerifier),
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
                "NOT REPORTED by {} of the {} cases that execute it",
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
    let verifier = Verifier::of(device).ok_or_else(|| NoVerifier(device.name().to_owned()))?;
    let mut devices = Devices {
        target: Target::open(device)?,
        cpu: Target::open(Device::cpu()?)?,
    };
    let executed = executed(cases, &verifier, &mut devices.target, seed, bar);
    bar.set_length(executed.len() as u64);
    bar.reset();
    let (mut reported, total) = (0, executed.len());
    for ((file, line), found) in executed {
        bar.set_message(format!("{file}:{line}"));
        let result = without(&found, cases, &verifier, &mut devices, seed);
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

/// Where a missing barrier may show, the surest first.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// In what the verifier finds by these rules.
    Findings(Lockstep),
    /// In a wrong result: atomic accesses are no races, whatever their order does.
    Result(Order),
}

const LOOKS: [Look; 4] = [
    Look::Findings(Lockstep::Hardware),
    Look::Findings(Lockstep::Strict),
    Look::Result(Order::Ascending),
    Look::Result(Order::Reversed),
];

/// Runs cases without a barrier until one shows that it is missing.
fn without(
    found: &Executed,
    cases: &[Box<dyn Case>],
    verifier: &Verifier,
    devices: &mut Devices,
    seed: u64,
) -> Line {
    let tried = tried(&found.cases);
    let looks = LOOKS
        .iter()
        .flat_map(|&look| tried.iter().map(move |&index| (look, index)));
    let mut reported = None;
    for (look, index) in looks {
        let case = &*cases[index];
        let shown = match look {
            Look::Findings(rules) => finds(
                case,
                &found.barrier,
                rules,
                verifier,
                &mut devices.target,
                seed,
            ),
            Look::Result(order) => spoils(case, &found.barrier, order, verifier, devices, seed),
        };
        if let Some(by) = shown {
            reported = Some((by, case.name()));
            break;
        }
    }
    Line {
        barrier: found.barrier.clone(),
        reported,
        cases: found.cases.len(),
    }
}

/// What the verifier finds by these rules in a case without a barrier, and not with it.
fn finds(
    case: &dyn Case,
    barrier: &Barrier,
    rules: Lockstep,
    verifier: &Verifier,
    target: &mut Target,
    seed: u64,
) -> Option<&'static str> {
    verifier.set_lockstep(rules);
    run(case, target, seed);
    let usual = verifier.take_findings();
    verifier.remove_barrier(&barrier.file, barrier.line);
    run(case, target, seed);
    verifier.restore_barriers();
    verifier.set_lockstep(Lockstep::Hardware);
    let mut new = verifier.take_findings().into_iter();
    let by = new.find(|finding| {
        finding.detector != Detector::OutOfBounds
            && !known::is_known(finding)
            && !usual.iter().any(|usual| is_same(usual, finding))
    })?;
    Some(name_of(by.detector, rules))
}

/// Whether a case passes in this order, and not without a barrier.
fn spoils(
    case: &dyn Case,
    barrier: &Barrier,
    order: Order,
    verifier: &Verifier,
    devices: &mut Devices,
    seed: u64,
) -> Option<&'static str> {
    verifier.set_order(order);
    let usual = devices.judge(case, seed);
    verifier.remove_barrier(&barrier.file, barrier.line);
    let missing = devices.judge(case, seed);
    verifier.restore_barriers();
    verifier.set_order(Order::Ascending);
    let _ = verifier.take_findings();
    let spoilt = usual == Outcome::Passed && missing != Outcome::Passed;
    spoilt.then_some(match order {
        Order::Ascending => "wrong result",
        _ => "wrong result in reversed order",
    })
}

/// The device, and what its results are compared with.
struct Devices {
    target: Target,
    cpu: Target,
}

impl Devices {
    fn judge(&mut self, case: &dyn Case, seed: u64) -> Outcome {
        let settings = Settings {
            gradients: false,
            ..Settings::of_gradients(seed)
        };
        runner::run(case, &mut self.target, &mut self.cpu, settings).outcome
    }
}

/// Which cases are tried, in order: the quickest of all, then more from the quickest to the slowest at even distances. The quickest
/// alone would not do: a barrier between simdgroups is missed only where there are several, and those cases are larger.
fn tried(cases: &[(Duration, usize)]) -> Vec<usize> {
    let mut sorted = cases.to_vec();
    sorted.sort();
    let (quickest, others) = sorted.split_at(sorted.len().min(TRIES / 2));
    let room = others.len().min(TRIES - TRIES / 2);
    // The last of each part of equal length, so that the slowest is among them.
    let spread = (1..=room).map(|part| &others[part * others.len() / room - 1]);
    quickest
        .iter()
        .chain(spread)
        .map(|&(_, index)| index)
        .collect()
}

/// Whether two findings are the same fault at the same places, in whatever lanes it was seen.
fn is_same(a: &Finding, b: &Finding) -> bool {
    let position = |site: &Option<Site>| site.as_ref().map(|site| site.position.clone());
    a.detector == b.detector
        && a.kernel == b.kernel
        && a.site.position == b.site.position
        && position(&a.other) == position(&b.other)
}

fn name_of(detector: Detector, rules: Lockstep) -> &'static str {
    match (detector, rules) {
        (Detector::Uninitialised, Lockstep::Hardware) => "uninitialised",
        (Detector::Uninitialised, Lockstep::Strict) => "uninitialised by strict rules",
        (Detector::DivergentBarrier, _) => "divergent barrier",
        (_, Lockstep::Hardware) => "race",
        (_, Lockstep::Strict) => "race by strict rules",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_and_the_slowest_cases_are_tried() {
        let cases = |count: u64| -> Vec<_> {
            (0..count)
                .rev()
                .map(|at| (Duration::from_secs(at), at as usize))
                .collect()
        };
        let all_of_few = tried(&cases(5));
        assert_eq!(all_of_few, [0, 1, 2, 3, 4]);
        assert_eq!(tried(&cases(TRIES as u64)).len(), TRIES);
        let some = tried(&cases(1000));
        assert_eq!(some.len(), TRIES);
        assert_eq!(some[..TRIES / 2], (0..TRIES / 2).collect::<Vec<_>>());
        assert_eq!(some.last(), Some(&999));
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
