//! Runs one case on one device and judges the result.

mod arms;

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml_rs::trace::Dispatch;
use ggml_rs::{
    Backend, Device, DeviceKind, Input, Output, Placement, Plan, PlanOptions, RunOptions,
};

use crate::case::{Case, CaseGraph, Choices};
use crate::data::{OperandData, values_of};
use crate::judge::compare::{compare, verdict};
use crate::judge::exact::{Exact, Exactness};
use crate::judge::outcome::{Against, CaseResult, Failure, Outcome};
use crate::judge::verify::Rules;
use crate::modes::grad;
use crate::modes::threads;

/// Bytes watched behind every tensor: upstream's 1024 floats.
const SENTINEL_BYTES: usize = 4096;

/// A device with its open backend.
pub struct Target {
    device: Device,
    threads: usize,
    backend: Backend,
}

impl Target {
    /// Opens a backend on the device, with all the CPU's threads where it takes threads.
    ///
    /// # Errors
    /// When the backend cannot be created.
    pub fn open(device: Device) -> ggml_rs::Result<Self> {
        Self::with_threads(device, cores())
    }

    /// Opens a backend on the device, with this many of the CPU's threads where it takes threads.
    ///
    /// # Errors
    /// When the backend cannot be created.
    pub fn with_threads(device: Device, threads: usize) -> ggml_rs::Result<Self> {
        Ok(Self {
            device,
            threads,
            backend: open_backend(device, threads)?,
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The backend, opened anew when an earlier case broke it: one bad case must not fail those after it.
    pub(crate) fn backend(&mut self) -> ggml_rs::Result<&mut Backend> {
        if self.backend.is_poisoned() {
            self.reopen()?;
        }
        Ok(&mut self.backend)
    }

    fn reopen(&mut self) -> ggml_rs::Result<()> {
        self.backend = open_backend(self.device, self.threads)?;
        Ok(())
    }
}

fn open_backend(device: Device, threads: usize) -> ggml_rs::Result<Backend> {
    let mut backend = device.open()?;
    if device.kind() == DeviceKind::Cpu {
        backend.set_threads(threads)?;
    }
    Ok(backend)
}

/// How many threads this process may run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What shapes every case of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seed of the test data.
    pub seed: u64,
    /// What is asked of the device under test. The CPU backend that it is compared with runs as it always does.
    pub choices: Choices,
    /// Whether an unsupported case is a failure.
    pub require_support: bool,
    /// Whether single elements count.
    pub exact: Option<Exactness>,
    /// Whether gradients are checked, and not results.
    pub gradients: bool,
    /// Whether results with one thread and with more are compared, up to how many, and not results with a reference.
    pub threads: Option<usize>,
    /// Whether the simulated device's verifier judges too, and by which rules.
    pub verify: Option<Rules>,
}

impl Settings {
    /// Those of a check of gradients.
    #[must_use]
    pub fn of_gradients(seed: u64) -> Self {
        Self {
            seed,
            choices: Choices::default(),
            require_support: false,
            exact: None,
            gradients: true,
            threads: None,
            verify: None,
        }
    }

    /// Those of a comparison of numbers of threads.
    #[must_use]
    pub fn of_threads(seed: u64, most: usize) -> Self {
        Self {
            gradients: false,
            threads: Some(most),
            ..Self::of_gradients(seed)
        }
    }
}

/// What a device made of a case.
pub(crate) struct Computed {
    /// The result's values.
    pub values: Vec<f32>,
    /// The pipelines dispatched, where the device records them.
    pub dispatches: Vec<Dispatch>,
}

/// Runs a case. `cpu` is ggml's CPU backend for the second comparison; where it is itself under test, the f64 reference
/// alone judges.
pub fn run(
    case: &dyn Case,
    target: &mut Target,
    cpu: &mut Target,
    settings: Settings,
) -> CaseResult {
    let mut result = CaseResult {
        limit: case.max_nmse(settings.choices),
        ..CaseResult::new(case.op(), case.params(), Outcome::Passed)
    };
    let judged = catch_unwind(AssertUnwindSafe(|| {
        if settings.gradients {
            grad::judge(case, target.device, settings, &mut result)
        } else if let Some(most) = settings.threads {
            threads::judge(case, target, settings, most, &mut result)
        } else {
            judge(case, target, cpu, settings, &mut result)
        }
    }));
    result.outcome = judged
        .unwrap_or_else(|panic| {
            // What they were doing is unknown.
            let reopened = target.reopen().and_then(|()| cpu.reopen());
            reopened?;
            Err(Failure::Panicked(message(&*panic)))
        })
        .unwrap_or_else(Outcome::Failed);
    result
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with no message".to_owned())
}

/// Fills in what `result` can say about the case and returns the outcome.
fn judge(
    case: &dyn Case,
    target: &mut Target,
    cpu: &mut Target,
    settings: Settings,
    result: &mut CaseResult,
) -> Result<Outcome, Failure> {
    if let Some(study) = case.study() {
        arms::judge(case, study, target, cpu, settings, result)?;
        return Ok(Outcome::Passed);
    }
    let built = match CaseGraph::new(case, settings.choices) {
        Err(refused) if !settings.require_support => {
            return Ok(Outcome::Unsupported(refused_by_ggml_rs(refused)));
        }
        built => built?,
    };
    if let [refused, ..] = target.device.unsupported(&built.graph).as_slice() {
        let reason = refusal(case, target.device).unwrap_or_else(|| refused.reason.clone());
        return if settings.require_support {
            Err(Failure::Required(reason))
        } else {
            Ok(Outcome::Unsupported(reason))
        };
    }
    let data = generate(case, settings.seed)?;
    let reference = match case.reference(&data)? {
        Some(values) => Some(values),
        None => built.evaluate(&data)?,
    };

    let form = (built.output.dtype(), built.output.shape().ne());
    let Computed { values, dispatches } = match settings.verify {
        Some(rules) => verified(case, settings.choices, rules, target, &data)?,
        None => compute(built, target, &data)?,
    };
    result.kernels = dispatches;
    result.hash = Some(hash_bits(&values));
    let exact = settings.exact.filter(|_| case.measure().is_in_order());
    if let Some(reference) = &reference {
        if exact.is_some() {
            let against = Against::Reference;
            (result.exact).push(Exact::measure(form, against, reference, &values));
        }
        let comparison = compare(case, &data, reference, &values)?;
        result.nmse = comparison.mismatch.is_none().then_some(comparison.nmse);
        verdict(&comparison, result.limit, Against::Reference)?;
    }
    let expected = match target.device == cpu.device {
        true => None,
        false => compute_on_cpu(case, cpu, &data)?,
    };
    if let Some(expected) = &expected {
        if exact.is_some() {
            let against = Against::CpuBackend;
            (result.exact).push(Exact::measure(form, against, expected, &values));
        }
        let limit = case.max_nmse(Choices::default());
        verdict(
            &compare(case, &data, expected, &values)?,
            limit,
            Against::CpuBackend,
        )?;
    }
    if reference.is_none() && expected.is_none() {
        return Err(Failure::NoReference);
    }
    // The reference in f64 comes first. Where there is one the CPU backend, which rounds as well, demands nothing.
    if let (Some(asked), Some(exact)) = (exact, result.exact.first()) {
        exact.check(asked).map_err(Failure::Inexact)?;
    }
    if target.device.is_metal() {
        check_routing(case, target.device, settings.choices, &result.kernels)?;
    }
    Ok(Outcome::Passed)
}

pub(crate) fn hash_bits(values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in values {
        value.to_bits().hash(&mut hasher);
    }
    hasher.finish()
}

pub(crate) fn generate(case: &dyn Case, seed: u64) -> ggml_rs::Result<Vec<OperandData>> {
    let name = case.name();
    case.operands()
        .iter()
        .map(|operand| OperandData::generate(operand, seed, &name))
        .collect()
}

/// Computes the case under the verifier.
fn verified(
    case: &dyn Case,
    choices: Choices,
    rules: Rules,
    target: &mut Target,
    data: &[OperandData],
) -> Result<Computed, Failure> {
    #[cfg(feature = "verifier")]
    return crate::judge::verify::compute(case, choices, rules, target, data);
    #[cfg(not(feature = "verifier"))]
    {
        let _ = (case, choices, rules, target, data);
        Err(Failure::Compute(crate::judge::verify::MISSING.to_owned()))
    }
}

/// Runs a plan, and says what was dispatched for it.
pub(crate) fn run_traced(plan: &mut Plan, target: &mut Target) -> ggml_rs::Result<Vec<Dispatch>> {
    let options = RunOptions {
        trace: true,
        ..RunOptions::default()
    };
    Ok(plan.run_with(target.backend()?, options)?.dispatches)
}

/// Computes the case.
fn compute(
    built: CaseGraph,
    target: &mut Target,
    data: &[OperandData],
) -> ggml_rs::Result<Computed> {
    let (mut plan, output) = prepare(built, target, data)?;
    let dispatches = run_traced(&mut plan, target)?;
    plan.check_sentinels()?;
    Ok(Computed {
        values: values_of(output.dtype(), &plan.read_bytes(&output)?)?,
        dispatches,
    })
}

/// A plan with every tensor in a buffer of its own, sentinels behind each, and the operands set.
pub(crate) fn prepare(
    built: CaseGraph,
    target: &mut Target,
    data: &[OperandData],
) -> ggml_rs::Result<(Plan, Output)> {
    let mut plan = Plan::new(built.graph, target.backend()?, apart())?;
    set(&mut plan, &built.inputs, data)?;
    Ok((plan, built.output))
}

/// Every tensor in a buffer of its own, sentinels behind each.
pub(crate) fn apart() -> PlanOptions {
    PlanOptions {
        placement: Placement::Separate {
            sentinel_bytes: SENTINEL_BYTES,
        },
    }
}

/// Sets the operands.
pub(crate) fn set(plan: &mut Plan, inputs: &[Input], data: &[OperandData]) -> ggml_rs::Result<()> {
    for (input, data) in inputs.iter().zip(data) {
        // Of some operands an op takes the shape alone.
        if plan.needs(input)? {
            plan.set_bytes(input, data.bytes())?;
        }
    }
    Ok(())
}

/// What ggml's CPU backend makes of the case, which is what upstream compares with; `None` where it does not support it.
fn compute_on_cpu(
    case: &dyn Case,
    cpu: &mut Target,
    data: &[OperandData],
) -> Result<Option<Vec<f64>>, Failure> {
    let built = CaseGraph::new(case, Choices::default())?;
    if !cpu.device.unsupported(&built.graph).is_empty() {
        return Ok(None);
    }
    let values = compute(built, cpu, data)?.values;
    Ok(Some(values.into_iter().map(f64::from).collect()))
}

/// That the kernel under test is the one that ran.
fn check_routing(
    case: &dyn Case,
    device: Device,
    choices: Choices,
    dispatches: &[Dispatch],
) -> Result<(), Failure> {
    match case.routing(device.tensor_api() == Some(true), choices) {
        Some(routing) => routing.check(dispatches).map_err(Failure::Routing),
        None => Ok(()),
    }
}

/// Why ggml-rs refuses a case, in words that cases share: without the operands, and without the line that called it.
pub(crate) fn refused_by_ggml_rs(error: ggml_rs::Error) -> String {
    use ggml_rs::Error::{DType, Layout, Param, Shape};
    match error {
        Shape(at) | DType(at) | Layout(at) | Param(at) => {
            format!("ggml-rs refuses it: {}: {}", at.op, at.detail)
        }
        other => format!("ggml-rs refuses it: {other}"),
    }
}

/// What it is about the case that the device refuses: what the first variant leaves out that the device takes. `None` where it
/// takes the case itself, and refuses what is asked of it.
fn refusal(case: &dyn Case, device: Device) -> Option<String> {
    let takes = |case: &dyn Case| {
        CaseGraph::new(case, Choices::default())
            .is_ok_and(|built| device.unsupported(&built.graph).is_empty())
    };
    if takes(case) {
        return None;
    }
    let mut relaxations = case.relaxations().into_iter();
    let taken = relaxations.find(|relaxation| takes(&*relaxation.case))?;
    Some(taken.without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_results_that_compare_equal() {
        assert_eq!(hash_bits(&[1.0, 2.0]), hash_bits(&[1.0, 2.0]));
        assert_ne!(hash_bits(&[0.0]), hash_bits(&[-0.0]));
        assert_ne!(hash_bits(&[1.0, 2.0]), hash_bits(&[2.0, 1.0]));
    }
}
