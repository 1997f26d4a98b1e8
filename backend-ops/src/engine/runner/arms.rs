//! Runs a case that is a study in every staging, and on the CPU backend.

use ggml_rs::check::{self, Comparison};
use ggml_rs::trace::Dispatch;

use super::{Computed, Settings, Target, check_routing, compute, hash_bits};
use crate::case::{Case, CaseGraph};
use crate::data::OperandData;
use crate::judge::compare::verdict;
use crate::judge::outcome::{Against, CaseResult, Failure};
use crate::judge::study::{Arm, Path, STAGINGS, Study};

/// The mean squared error of a study is bounded by [`Study::check`]; NaN and infinities fail as everywhere.
const NO_LIMIT: f64 = f64::INFINITY;

/// Fills in the arms, the numbers of the default staging, and checks what the arms are held to.
pub(super) fn judge(
    case: &dyn Case,
    study: Study,
    target: &mut Target,
    cpu: &mut Target,
    settings: Settings,
    result: &mut CaseResult,
) -> Result<(), Failure> {
    if !target.device.is_metal() {
        let reason = "its arms are stagings of Metal's batched kernels";
        return Err(Failure::Required(reason.to_owned()));
    }
    let data = super::generate(case, settings.seed)?;
    let reference = case.reference(&data)?.ok_or(Failure::NoReference)?;
    for staging in STAGINGS {
        let path = Path::Staged(staging);
        let computed = run(case, path, target, &data)?;
        check_routing(case, target.device, path.choices(), &computed.dispatches)
            .map_err(|failure| of_path(path, failure))?;
        result.arms.push(measure(path, &reference, &computed)?);
        result.kernels.extend(computed.dispatches);
    }
    let calibration = run(case, Path::CpuBackend, cpu, &data)?;
    let arm = measure(Path::CpuBackend, &reference, &calibration)?;
    result.arms.push(arm);
    let default = &result.arms[0];
    result.hash = Some(default.hash);
    result.nmse = Some(default.rms * default.rms);
    study.check(&result.arms).map_err(Failure::Study)
}

/// Computes the case; a device that does not run it fails the study.
fn run(
    case: &dyn Case,
    path: Path,
    target: &mut Target,
    data: &[OperandData],
) -> Result<Computed, Failure> {
    let built = CaseGraph::new(case, path.choices())?;
    if let [refused, ..] = target.device.unsupported(&built.graph).as_slice() {
        let reason = format!("{}: {}", path.name(), refused.reason);
        return Err(Failure::Required(reason));
    }
    Ok(compute(built, target, data)?)
}

fn measure(path: Path, reference: &[f64], computed: &Computed) -> Result<Arm, Failure> {
    let comparison = check::compare(reference, &computed.values)?;
    verdict(&comparison, NO_LIMIT, Against::Reference).map_err(|failure| of_path(path, failure))?;
    Ok(Arm {
        path,
        rms: comparison.nmse.sqrt(),
        max_abs: largest(&comparison) / rms(reference),
        kernel: computed.dispatches.iter().rev().find(is_product).cloned(),
        hash: hash_bits(&computed.values),
    })
}

fn is_product(dispatch: &&Dispatch) -> bool {
    dispatch.pipeline.starts_with("kernel_mul_m")
}

fn of_path(path: Path, failure: Failure) -> Failure {
    Failure::Study(format!("{}: {failure}", path.name()))
}

fn largest(comparison: &Comparison) -> f64 {
    comparison
        .worst
        .map_or(0.0, |at| (at.reference - f64::from(at.got)).abs())
}

fn rms(values: &[f64]) -> f64 {
    let power: f64 = values.iter().map(|value| value * value).sum();
    (power / values.len() as f64).sqrt()
}
