//! Set `staging`: OUT_PROD with float against half staging, at the sizes for which others published timings.
//!
//! On a real device the arms take turns and the table holds times. On the simulated one counters of a run stand in their place,
//! at the sizes that it runs within seconds; of the larger ones the table tells what the device answers without a run.

mod probe;
mod table;

use std::io;

use ggml_rs::{DType, Route, Staging};

use super::measure::{self, Measured, Outcome};
use super::parts::Parts;
use super::{Arm, DIRECT, Sinks, report};
use crate::case::{Case, CaseGraph, Choices};
use crate::cases::OutProd;
use crate::engine::runner::{Settings, Target};
use crate::engine::session::{Error, Verdict};
use crate::report::DeviceInfo;

/// The most that a simulated device runs here: the smallest size of the table, in each arm.
const SIMULATED_FLOPS: f64 = 1e10;

const TOKENS: usize = 1024;
/// m and k: the sizes of the published timings.
const SIZES: [[usize; 2]; 4] = [[1536, 1536], [5120, 5120], [5120, 17408], [17408, 5120]];
const WEIGHTS: [DType; 2] = [DType::Q4_K, DType::F32];

/// The cases, weight by weight.
#[must_use]
pub fn cases() -> Vec<OutProd> {
    WEIGHTS
        .into_iter()
        .flat_map(|weights| SIZES.map(|[m, k]| OutProd::new(weights, DType::F32, [m, TOKENS, k])))
        .collect()
}

/// The arms of a process, in which the tensor API is on or off. With it on, the tensor kernel runs, which stages `a` alone. The
/// direct route is the same in both.
#[must_use]
pub fn arms(tensor_api: bool) -> Vec<Arm> {
    let arm = |name, staging, route| Arm {
        name: Some(name),
        choices: Choices {
            staging: Some(staging),
            route,
        },
    };
    if tensor_api {
        vec![
            arm("tensor", Staging::Float, None),
            arm("tensor-half", Staging::Half, None),
        ]
    } else {
        vec![
            arm("simd-half", Staging::Half, None),
            arm("simd-float", Staging::Float, None),
            arm(DIRECT, Staging::Float, Some(Route::Direct)),
        ]
    }
}

/// What an arm does with a case.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmResult {
    /// The arm.
    pub arm: Arm,
    /// The product's pipeline and its threadgroup memory.
    pub product: (String, usize),
    /// Bytes of operands, result and scratch: the device's own answer.
    pub held: usize,
    /// How long it takes, or what it does where the device is simulated; or why neither is known.
    pub measured: Result<Measured, String>,
}

/// Runs the table on a device.
pub(super) fn run(
    cases: &[OutProd],
    target: &mut Target,
    info: &DeviceInfo,
    settings: Settings,
    sinks: &mut Sinks<'_>,
) -> Result<Verdict, Error> {
    let Some(tensor_api) = info.tensor_api else {
        sinks.line(
            "  its arms are stagings of Metal's kernels: nothing to compare on this device",
        )?;
        return Ok(Verdict::NothingRan);
    };
    let simulated = target.device().is_simulated();
    let arms = arms(tensor_api);
    for line in table::preface(simulated, tensor_api) {
        sinks.line(line)?;
    }
    let mut verdict = Verdict::NothingRan;
    for case in cases {
        sinks.line(format_args!("\n  {}", case.name()))?;
        match results(case, &arms, target, settings.seed) {
            Ok((results, parts)) => {
                for line in table::lines(case, &results, parts.as_ref()) {
                    sinks.line(line)?;
                }
                write_rows(case, &results, info, sinks)?;
                let ran = results.iter().any(|result| result.measured.is_ok());
                if ran && verdict == Verdict::NothingRan {
                    verdict = Verdict::Passed;
                }
            }
            Err(reason) => {
                sinks.line(format_args!("    {reason} FAIL"))?;
                verdict = Verdict::Failed;
            }
        }
    }
    for line in table::closing(simulated, tensor_api) {
        sinks.line(line)?;
    }
    Ok(verdict)
}

type Results = (Vec<ArmResult>, Option<Parts>);

fn results(
    case: &OutProd,
    arms: &[Arm],
    target: &mut Target,
    seed: u64,
) -> Result<Results, String> {
    let (measured, parts): (Vec<_>, _) =
        match measure::measure_up_to(SIMULATED_FLOPS, case, arms, target, seed) {
            Outcome::Measured { arms, parts, .. } => (
                arms.into_iter().map(|(_, measured)| Ok(measured)).collect(),
                parts,
            ),
            Outcome::TooLarge(size) => (vec![Err(report::too_large(&size)); arms.len()], None),
            Outcome::Unsupported(reason) | Outcome::Failed(reason) => return Err(reason),
        };
    let results = arms.iter().zip(measured);
    let results = results
        .map(|(&arm, measured)| {
            Ok(ArmResult {
                arm,
                product: probe::product(case.type_a, arm, target, seed)?,
                held: probe::held(case, arm, target).map_err(|error| error.to_string())?,
                measured,
            })
        })
        .collect::<Result<_, String>>()?;
    Ok((results, parts))
}

fn write_rows(
    case: &OutProd,
    results: &[ArmResult],
    info: &DeviceInfo,
    sinks: &mut Sinks<'_>,
) -> io::Result<()> {
    let Some(rows) = &mut sinks.rows else {
        return Ok(());
    };
    for result in results {
        let (row, extra) = table::row(case, result, info);
        rows.write_with(&row, &extra)?;
    }
    Ok(())
}

/// The graph of a case in an arm.
fn built(case: &OutProd, arm: Arm) -> ggml_rs::Result<CaseGraph> {
    CaseGraph::new(case as &dyn Case, arm.choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_weights_come_at_every_published_size() {
        let cases = cases();
        assert_eq!(cases.len(), 8);
        assert!(cases.iter().all(|case| case.n == 1024 && !case.trans_b));
        for weights in ["q4_K", "f32"] {
            for (m, k) in [(1536, 1536), (5120, 5120), (5120, 17408), (17408, 5120)] {
                let found = cases
                    .iter()
                    .filter(|case| case.type_a.name() == weights && case.m == m && case.k == k);
                assert_eq!(found.count(), 1);
            }
        }
    }
}
