//! Measures one case on one device.

use std::time::{Duration, Instant};

use ggml_rs::sim::Counters;
use ggml_rs::trace::Dispatch;
use ggml_rs::{Backend, Graph, Input, Plan, PlanOptions, RunOptions};

use super::Arm;
use super::parts::{self, Parts};
use super::rounds::{Timing, alternate, runs_in_a_round};
use crate::case::{Case, CaseGraph};
use crate::data::OperandData;
use crate::engine::runner::{Target, generate, refused_by_ggml_rs, run_traced};

/// What a simulated device takes seconds for: multiply-adds and bytes.
const SIMULATED_FLOPS: f64 = 4e8;
const SIMULATED_BYTES: usize = 32 << 20;

/// What one arm came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// On a device that has a clock of its own kind.
    Time(Timing),
    /// On a simulated device: what one run did, and what it dispatched.
    Work(Counters, Vec<Dispatch>),
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Figures, arm by arm.
    Measured {
        /// Floating point operations of a run, where that says more than bytes.
        flops: Option<f64>,
        /// Bytes of operands and result.
        bytes: usize,
        /// The arms.
        arms: Vec<(Arm, Measured)>,
        /// What an OUT_PROD is made of, timed alone.
        parts: Option<Parts>,
    },
    /// The device does not support it.
    Unsupported(String),
    /// A simulated device would take minutes.
    TooLarge(String),
    /// It could not be run.
    Failed(String),
}

/// Measures the arms of a case against each other.
pub fn measure(case: &dyn Case, arms: &[Arm], target: &mut Target, seed: u64) -> Outcome {
    measure_up_to(SIMULATED_FLOPS, case, arms, target, seed)
}

/// The same, where a simulated device runs cases of at most so many operations.
pub(super) fn measure_up_to(
    simulated_flops: f64,
    case: &dyn Case,
    arms: &[Arm],
    target: &mut Target,
    seed: u64,
) -> Outcome {
    try_measure(simulated_flops, case, arms, target, seed)
        .unwrap_or_else(|error| Outcome::Failed(error.to_string()))
}

fn try_measure(
    simulated_flops: f64,
    case: &dyn Case,
    arms: &[Arm],
    target: &mut Target,
    seed: u64,
) -> ggml_rs::Result<Outcome> {
    let device = target.device();
    let built: Vec<_> = match arms
        .iter()
        .map(|arm| CaseGraph::new(case, arm.choices))
        .collect::<ggml_rs::Result<_>>()
    {
        Ok(built) => built,
        Err(refused) => {
            return Ok(Outcome::Unsupported(refused_by_ggml_rs(refused)));
        }
    };
    let refused = |built: &CaseGraph| device.unsupported(&built.graph).into_iter().next();
    if let Some(refused) = built.iter().find_map(refused) {
        return Ok(Outcome::Unsupported(refused.reason));
    }
    let (flops, bytes) = (case.flops(), built[0].bytes()?);
    if device.is_simulated()
        && let Some(reason) = too_large(simulated_flops, flops, bytes)
    {
        return Ok(Outcome::TooLarge(reason));
    }
    let data = generate(case, seed)?;
    let mut plans = Vec::new();
    for built in built {
        plans.push(plan(built.graph, &built.inputs, &data, target.backend()?)?);
    }
    let (arms, parts) = if device.is_simulated() {
        (count(arms, plans, target)?, None)
    } else {
        let runs = runs_in_a_round(flops, bytes, device.kind() == ggml_rs::DeviceKind::Cpu);
        let timings = time(plans, runs, Submit::of(case), target)?;
        let timed = arms
            .iter()
            .copied()
            .zip(timings.into_iter().map(Measured::Time));
        (timed.collect(), parts::of_case(case, arms, target, seed)?)
    };
    Ok(Outcome::Measured {
        flops,
        bytes,
        arms,
        parts,
    })
}

fn too_large(most_flops: f64, flops: Option<f64>, bytes: usize) -> Option<String> {
    match flops {
        Some(flops) if flops > most_flops => Some(format!("{:.1e} multiply-adds", flops / 2.0)),
        None if bytes > SIMULATED_BYTES => Some(format!("{} MiB", bytes >> 20)),
        _ => None,
    }
}

/// Allocates a graph and sets its inputs.
pub(super) fn plan(
    graph: Graph,
    inputs: &[Input],
    data: &[OperandData],
    backend: &Backend,
) -> ggml_rs::Result<Plan> {
    let mut plan = Plan::new(graph, backend, PlanOptions::default())?;
    for (input, data) in inputs.iter().zip(data) {
        if plan.needs(input)? {
            plan.set_bytes(input, data.bytes())?;
        }
    }
    Ok(plan)
}

/// How the runs of a round reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submit {
    /// All in one submission, as upstream's.
    Together,
    /// One by one: backends fuse no nodes of a graph that is repeated, and this one is about that.
    Singly,
}

impl Submit {
    pub fn of(case: &dyn Case) -> Self {
        if case.is_fusion() {
            Self::Singly
        } else {
            Self::Together
        }
    }
}

/// Times plans against each other, with so many runs in a round.
pub(super) fn time(
    plans: Vec<Plan>,
    runs: usize,
    submit: Submit,
    target: &mut Target,
) -> ggml_rs::Result<Vec<Timing>> {
    let mut plans: Vec<_> = plans.into_iter().map(|plan| (plan, runs)).collect();
    let backend = target.backend()?;
    alternate(&mut plans, |plan, runs| -> ggml_rs::Result<Duration> {
        let start = Instant::now();
        match submit {
            Submit::Together => drop(plan.run_with(backend, repeated(runs))?),
            Submit::Singly => (0..runs).try_for_each(|_| plan.run(backend))?,
        }
        Ok(start.elapsed())
    })
}

/// Runs a graph so many times over, as one.
pub(super) fn repeated(runs: usize) -> RunOptions<'static> {
    RunOptions {
        repeat: runs,
        ..RunOptions::default()
    }
}

fn count(
    arms: &[Arm],
    plans: Vec<Plan>,
    target: &mut Target,
) -> ggml_rs::Result<Vec<(Arm, Measured)>> {
    arms.iter()
        .zip(plans)
        .map(|(arm, mut plan)| {
            let (counters, dispatches) = count_run(&mut plan, target)?;
            Ok((*arm, Measured::Work(counters, dispatches)))
        })
        .collect()
}

/// What one run did on a simulated device.
pub(super) fn count_run(
    plan: &mut Plan,
    target: &mut Target,
) -> ggml_rs::Result<(Counters, Vec<Dispatch>)> {
    let device = target.device();
    let before = Counters::read(device).unwrap_or_default();
    let dispatches = run_traced(plan, target)?;
    let after = Counters::read(device).unwrap_or_default();
    Ok((after - before, dispatches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_a_simulated_device_minutes_is_left_out_with_its_size() {
        assert_eq!(too_large(SIMULATED_FLOPS, Some(2e8), usize::MAX), None);
        assert_eq!(
            too_large(SIMULATED_FLOPS, Some(6e10), 0).as_deref(),
            Some("3.0e10 multiply-adds")
        );
        assert_eq!(too_large(SIMULATED_FLOPS, None, 1 << 20), None);
        assert_eq!(
            too_large(SIMULATED_FLOPS, None, 64 << 20).as_deref(),
            Some("64 MiB")
        );
    }
}
