//! Mode `grad`: the gradients of a case's trained operands.
//!
//! The loss is the sum of the result's elements, each times a fixed random weight: with upstream's plain sum the gradient of every
//! op would start from ones, which hides transposed ones. What [`ggml_rs::check`] does with it:
//!
//! - central differences in f64 of the graph, for as many elements as there is time for, drawn by the seed;
//! - the graph's own backward in f64 must agree with the differences: a wrong rule shows however small its error is;
//! - the device must agree with both in every element, with operands in one buffer and in buffers of their own.
//!
//! A case without an F32 operand to train, or whose op has no backward, is not supported, and no pass. Nor is one of which the CPU
//! computed a part for the device. An operand without a gradient among others that have one is named with the reason; the kept table of
//! all of them (`Table`, docs/gradients.md) tells when a rule begins to refuse one.

mod checked;
mod operands;
mod table;

pub use checked::{Checked, Sum};
pub use table::Table;

use ggml_rs::check::{GradientOptions, GradientReport, Subject, gradients_of};
use ggml_rs::{BackwardOptions, Builder, DType, Device, Graph, Route};

use crate::case::{Case, CaseGraph, Choices, Leaves};
use crate::data::{Operand, OperandData};
use crate::engine::runner::{Settings, refused_by_ggml_rs};
use crate::judge::outcome::{CaseResult, Failure, Outcome};
use operands::Training;

/// The most elements of an operand of which differences are taken: each takes four evaluations of the whole graph.
const MOST_ELEMENTS: usize = 32;
/// And the fewest, of however large a graph.
const FEWEST_ELEMENTS: usize = 4;
/// What the evaluations of a case may add up to, in values or multiply-adds: a second or so.
const WORK: f64 = 1e8;

/// The most elements of a case's operands: the evaluations keep some ten copies of each in f64, in every worker.
const MOST_VALUES: usize = 1 << 25;

/// The graphs of the gradients of a case's operands, one for each that has one.
pub(crate) fn backwards(case: &dyn Case) -> Vec<Graph> {
    operands::backwards(case)
}

/// Checks a case's gradients on a device. Fills in what `result` can say about the case and returns the outcome.
pub(crate) fn judge(
    case: &dyn Case,
    device: Device,
    settings: Settings,
    result: &mut CaseResult,
) -> Result<Outcome, Failure> {
    result.limit = case.gradient().tolerance;
    let built = match CaseGraph::new(case, settings.choices) {
        Err(refused) => return Ok(Outcome::Unsupported(refused_by_ggml_rs(refused))),
        Ok(built) => built,
    };
    if let Some(reason) = integral(&built).or_else(|| too_large(case)) {
        return Ok(Outcome::Unsupported(reason));
    }
    let looked = operands::look(case, settings.choices)?;
    match Training::of(case, &looked) {
        Err(reason) => Ok(Outcome::Unsupported(reason)),
        Ok(training) => check(case, &built, training, device, settings, result),
    }
}

fn check(
    case: &dyn Case,
    built: &CaseGraph,
    training: Training,
    device: Device,
    settings: Settings,
    result: &mut CaseResult,
) -> Result<Outcome, Failure> {
    let operands = &training.operands;
    let data = generate(case, operands, settings.seed)?;
    match unsuited(built, operands, &data) {
        Err(error) => return not_computable(error),
        Ok(Some(reason)) => return Ok(Outcome::Unsupported(reason)),
        Ok(None) => {}
    }
    let options = options(case, built, operands, device, settings);
    let report = match gradients_of(&options, |g| subject(case, g, operands, &data, settings)) {
        Err(error) => return not_computable(error),
        Ok(report) => report,
    };
    result.hash = Some(report.hash);
    let checked = Checked::new(&report, training.trained, training.untrained);
    let checked = result.gradient.insert(Box::new(checked));
    verdict(&report, checked)?;
    Ok(passed(checked))
}

/// A device has passed where it computed everything. What the CPU computed for it is upstream's "not supported", however right.
fn passed(checked: &Checked) -> Outcome {
    match checked.on_cpu.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Unsupported(format!(
            "{} left to the CPU, with which the gradient is right",
            checked::listed(&checked.on_cpu)
        )),
    }
}

/// Why a case has no gradient whatever its operands are.
fn integral(built: &CaseGraph) -> Option<String> {
    let dtype = built.output.dtype();
    (!is_float(dtype)).then(|| format!("the result is of {dtype}"))
}

/// Why there is no memory for the differences of a case. Its op's smaller cases have the same rule.
fn too_large(case: &dyn Case) -> Option<String> {
    let operands = case.operands();
    let sizes = operands
        .iter()
        .map(|operand| operand.ne.iter().product::<usize>());
    let values: usize = sizes.sum();
    (values > MOST_VALUES).then(|| {
        format!("{values} values are too many for differences in f64 (at most {MOST_VALUES})")
    })
}

/// Why a case has no gradient to check, whatever its op: differences with a step of 1/512 need values near 1, and a result that is a
/// number, and one that f32 has room for.
fn unsuited(
    built: &CaseGraph,
    operands: &[Operand],
    data: &[OperandData],
) -> ggml_rs::Result<Option<String>> {
    let trained = operands.iter().zip(data);
    let mut trained = trained.filter(|(operand, _)| operand.trained);
    if let Some((operand, _)) = trained.find(|(_, data)| !is_near_one(data.values())) {
        let name = operand.name;
        return Ok(Some(format!(
            "values of `{name}` are not near 1, as differences need"
        )));
    }
    let Some(result) = built.evaluate(data)? else {
        return Ok(Some("an op has no definition in f64".to_owned()));
    };
    let beyond = |value: &f64| value.is_nan() || (value.is_finite() && value.abs() > LARGEST);
    Ok(result
        .iter()
        .any(beyond)
        .then(|| "the result is NaN, or almost beyond f32".to_owned()))
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// A result with which an f32 still has room for a sum of gradients.
const LARGEST: f64 = 1e30;

fn is_near_one(values: &[f32]) -> bool {
    let largest = values
        .iter()
        .fold(0.0, |most: f32, value| most.max(value.abs()));
    values.iter().all(|value| value.is_finite()) && (1e-2..=1e3).contains(&largest)
}

fn generate(case: &dyn Case, operands: &[Operand], seed: u64) -> ggml_rs::Result<Vec<OperandData>> {
    let name = case.name();
    operands
        .iter()
        .map(|operand| OperandData::generate(operand, seed, &name))
        .collect()
}

/// The products that a backward makes are those of the case's own choices.
fn backward(choices: Choices) -> BackwardOptions {
    let route = choices.route.filter(|&route| route == Route::Direct);
    BackwardOptions::default()
        .staging(choices.staging)
        .route(route)
}

fn options(
    case: &dyn Case,
    built: &CaseGraph,
    operands: &[Operand],
    device: Device,
    settings: Settings,
) -> GradientOptions {
    GradientOptions::default()
        .seed(settings.seed)
        .tolerance(case.gradient().tolerance)
        .floor(case.gradient().floor)
        .device(device)
        .backward(backward(settings.choices))
        .elements(elements(case, built, operands))
        .skip_kinks(true)
}

/// How many elements of each trained operand get differences. By sizes, not by the clock: a seed means the same everywhere.
fn elements(case: &dyn Case, built: &CaseGraph, operands: &[Operand]) -> usize {
    let sizes = operands
        .iter()
        .map(|operand| operand.ne.iter().product::<usize>());
    let values = sizes.sum::<usize>() + built.output.shape().elements();
    let work = (values as f64).max(case.flops().unwrap_or(0.0) / 2.0);
    let trained = operands.iter().filter(|operand| operand.trained).count();
    let runs = WORK / (4.0 * work.max(1.0) * trained.max(1) as f64);
    (runs as usize).clamp(FEWEST_ELEMENTS, MOST_ELEMENTS)
}

/// The case's graph, with the trained operands marked.
fn subject<'g>(
    case: &dyn Case,
    g: Builder<'g>,
    operands: &[Operand],
    data: &[OperandData],
    settings: Settings,
) -> ggml_rs::Result<Subject<'g>> {
    let (leaves, inputs) = Leaves::declare(g, operands, settings.choices, true)?;
    let mut subject = Subject::new(case.build(&leaves)?);
    let inputs = operands.iter().zip(inputs).zip(data).enumerate();
    for (place, ((operand, input), data)) in inputs {
        match operand.trained {
            true => subject.trained(operand.name, leaves[place], input, data.values().to_vec()),
            false => subject.given(input, data.bytes().to_vec()),
        }
    }
    Ok(subject)
}

/// What an error of a check says about the case: that it cannot be computed, or that something failed. That there is no gradient was
/// found out before.
fn not_computable(error: ggml_rs::Error) -> Result<Outcome, Failure> {
    let reason = match &error {
        ggml_rs::Error::Unsupported(why) => format!("{} on {}: {}", why.op, why.device, why.reason),
        // The backward of a gather of rows is a product with zeros and ones, which may be far larger than the operands.
        ggml_rs::Error::Alloc { what, .. } if what == REFERENCE => error.to_string(),
        _ => return Err(error.into()),
    };
    Ok(Outcome::Unsupported(reason))
}

/// What ggml-rs's interpreter calls itself.
const REFERENCE: &str = "the f64 reference";

/// ggml-rs's words where no gradient reaches a trained operand.
const FLAT: &str = "does not depend on a tensor that is marked with set_param";

fn verdict(report: &GradientReport, checked: &Checked) -> Result<(), Failure> {
    if 2 * checked.kinks > checked.elements + checked.kinks {
        return Err(Failure::Gradient(format!(
            "{} of {} elements are at kinks: the rest proves too little; other values are needed",
            checked.kinks,
            checked.elements + checked.kinks
        )));
    }
    for (what, found) in [
        ("backward in f64", &report.formula),
        ("device", &report.device),
    ] {
        if !found.passes() {
            return Err(Failure::Gradient(format!("{what}: {found}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ggml_rs::Tensor;

    use super::*;

    /// `x * x`, or an op of another kind.
    struct Square {
        trained: bool,
        ne: [usize; 4],
        range: Option<[f32; 2]>,
        build: for<'g> fn(Tensor<'g>) -> ggml_rs::Result<Tensor<'g>>,
    }

    impl Case for Square {
        fn op(&self) -> &'static str {
            "MUL"
        }

        fn params(&self) -> String {
            String::new()
        }

        fn operands(&self) -> Vec<Operand> {
            let dtype = if self.trained { DType::F32 } else { DType::F16 };
            vec![Operand::new("x", dtype, self.ne)]
        }

        fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
            (self.build)(leaves[0])
        }

        fn gradient(&self) -> crate::case::Gradient {
            crate::case::Gradient {
                range: self.range,
                ..Default::default()
            }
        }
    }

    fn square() -> Square {
        Square {
            trained: true,
            ne: [6, 50, 1, 1],
            range: None,
            build: |x| x.mul(x),
        }
    }

    fn judged(case: &Square) -> (Result<Outcome, Failure>, CaseResult) {
        let mut result = CaseResult::new("MUL", String::new(), Outcome::Passed);
        let device = Device::cpu().expect("always there");
        let outcome = judge(case, device, Settings::of_gradients(1), &mut result);
        (outcome, result)
    }

    #[test]
    fn a_gradient_is_checked_and_says_how_far() {
        let (outcome, result) = judged(&square());
        assert_eq!(outcome, Ok(Outcome::Passed));
        let checked = result.gradient.expect("it ran");
        assert!((FEWEST_ELEMENTS..=MOST_ELEMENTS).contains(&checked.elements));
        assert_eq!((checked.of, checked.kinks), (300, 0));
        assert!(checked.ops.contains("MUL"));
    }

    #[test]
    fn what_has_no_gradient_is_no_pass() {
        let untrained = Square {
            trained: false,
            ..square()
        };
        let flat = Square {
            build: |x| x.step(),
            ..square()
        };
        let integers = Square {
            build: |x| x.argmax(),
            ..square()
        };
        let large = Square {
            ne: [MOST_VALUES, 2, 1, 1],
            ..square()
        };
        // The operands are small, and the result is not.
        let grows = Square {
            ne: [1 << 10, 1, 1, 1],
            build: |x| x.repeat([1 << 10, 1 << 10, 1 << 9]),
            ..square()
        };
        for (case, reason) in [
            (large, "too many for differences"),
            (grows, REFERENCE),
            (untrained, "trained"),
            (flat, "constant"),
            (integers, "i32"),
        ] {
            match judged(&case).0 {
                Ok(Outcome::Unsupported(why)) => assert!(why.contains(reason), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_case_of_kinks_fails() {
        let kinks = Square {
            range: Some([1.0, 1.000_001]),
            build: |x| x.clamp(-1.0, 1.0),
            ..square()
        };
        match judged(&kinks).0 {
            Err(Failure::Gradient(why)) => assert!(why.contains("at kinks"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}
