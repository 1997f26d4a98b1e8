//! What a case is made of on a real device, which shows only the whole: each of its [`Case::parts`] is timed alone.

use ggml_rs::Route;

use super::Arm;
use super::measure::{Submit, plan, time};
use super::rounds::{Timing, runs_in_a_round};
use crate::case::{Case, CaseGraph, Choices, Part};
use crate::engine::runner::{Target, generate};

/// A part, timed alone.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedPart {
    /// What it does; for the product in one of several arms, with the arm's name.
    pub name: String,
    /// Whether it makes a temporary.
    pub is_temporary: bool,
    /// How long it takes.
    pub timing: Timing,
}

/// The parts of a case. They come to more than the whole where the device overlaps them, and to less where it works in blocks
/// and adds their sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts(pub Vec<TimedPart>);

impl Parts {
    /// The medians of all temporaries, in microseconds.
    #[must_use]
    pub fn temporaries_us(&self) -> f64 {
        let temporaries = self.0.iter().filter(|part| part.is_temporary);
        temporaries.map(|part| part.timing.series.median()).sum()
    }
}

/// Times the parts of a case on a real Metal device, the product in every arm. `None` where there are none to tell apart: the
/// CPU makes no temporaries in memory.
///
/// # Errors
/// When a part cannot be run.
pub fn of_case(
    case: &dyn Case,
    arms: &[Arm],
    target: &mut Target,
    seed: u64,
) -> ggml_rs::Result<Option<Parts>> {
    let parts = case.parts();
    if parts.is_empty() || !target.device().is_metal() {
        return Ok(None);
    }
    let mut timed = Vec::new();
    for part in &parts {
        for (name, choices) in ways(part, arms) {
            timed.push(TimedPart {
                name,
                is_temporary: part.is_temporary,
                timing: time_alone(&*part.case, choices, target, seed)?,
            });
        }
    }
    Ok(Some(Parts(timed)))
}

/// A temporary is the same in every arm.
fn ways(part: &Part, arms: &[Arm]) -> Vec<(String, Choices)> {
    if part.is_temporary {
        return vec![(part.name.to_owned(), Choices::default())];
    }
    let name = |arm: &Arm| match arm.name {
        Some(name) => format!("{} {name}", part.name),
        None => part.name.to_owned(),
    };
    // The direct route has no parts.
    arms.iter()
        .filter(|arm| arm.choices.route != Some(Route::Direct))
        .map(|arm| (name(arm), arm.choices))
        .collect()
}

fn time_alone(
    case: &dyn Case,
    choices: Choices,
    target: &mut Target,
    seed: u64,
) -> ggml_rs::Result<Timing> {
    let built = CaseGraph::new(case, choices)?;
    let data = generate(case, seed)?;
    let runs = runs_in_a_round(case.flops(), built.bytes()?, false);
    let plan = plan(built.graph, &built.inputs, &data, target.backend()?)?;
    let timings = time(vec![plan], runs, Submit::Together, target)?;
    Ok(timings.into_iter().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ggml_rs::DType::{F32, Q4_K};
    use ggml_rs::Staging;

    use super::*;
    use crate::cases::OutProd;
    use crate::modes::perf;

    #[test]
    fn the_product_is_timed_in_every_arm_and_a_temporary_once() {
        let case = OutProd::new(Q4_K, F32, [256, 32, 64]);
        let arms = perf::arms(&case, true, Choices::default());
        let names: Vec<_> = case
            .parts()
            .iter()
            .flat_map(|part| ways(part, &arms))
            .map(|(name, choices)| (name, choices.staging))
            .collect();
        let expected = [
            ("a to float", None),
            ("a transposed", None),
            ("b transposed", None),
            ("product float", Some(Staging::Float)),
            ("product half", Some(Staging::Half)),
        ];
        assert_eq!(
            names,
            expected.map(|(name, staging)| (name.to_owned(), staging))
        );
    }

    #[test]
    fn temporaries_are_summed_without_the_product() {
        let part = |is_temporary, us| {
            let mut timing = Timing {
                runs: 1,
                total: Duration::from_micros(us),
                ..Timing::default()
            };
            timing.series.push(us as f64);
            TimedPart {
                name: String::new(),
                is_temporary,
                timing,
            }
        };
        let parts = Parts(vec![part(true, 3), part(true, 4), part(false, 100)]);
        assert_eq!(parts.temporaries_us(), 7.0);
    }
}
