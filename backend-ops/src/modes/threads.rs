//! Mode `threads`: the CPU's bits must not depend on the number of threads.
//!
//! Nothing is compared with a reference: that is what mode `test` is for.

use ggml_rs::{Device, DeviceKind, Plan};

use crate::case::{Case, CaseGraph};
use crate::data::values_of;
use crate::engine::runner::{self, Settings, Target};
use crate::judge::outcome::{CaseResult, Failure, Outcome};

/// Each case runs with one thread, and then with more, up to so many unless `--threads` says otherwise.
pub const MOST: usize = 8;

/// Only the CPU has threads to choose.
#[derive(Debug, thiserror::Error)]
#[error("mode threads: {0} has no number of threads to choose; run it with -b CPU, or without -b")]
pub struct NoThreads(pub String);

/// Refuses other devices, before any case runs.
///
/// # Errors
/// Names the first.
pub fn require(devices: &[Device]) -> Result<(), NoThreads> {
    let other = |device: &&Device| device.kind() != DeviceKind::Cpu;
    match devices.iter().find(other) {
        Some(device) => Err(NoThreads(device.name().to_owned())),
        None => Ok(()),
    }
}

/// Computes a case with every number of threads.
pub(crate) fn judge(
    case: &dyn Case,
    target: &mut Target,
    settings: Settings,
    most: usize,
    result: &mut CaseResult,
) -> Result<Outcome, Failure> {
    let built = match CaseGraph::new(case, settings.choices) {
        Err(refused) => return Ok(Outcome::Unsupported(runner::refused_by_ggml_rs(refused))),
        Ok(built) => built,
    };
    if let [refused, ..] = target.device().unsupported(&built.graph).as_slice() {
        return Ok(Outcome::Unsupported(refused.reason.clone()));
    }
    let data = runner::generate(case, settings.seed)?;
    let (inputs, output) = (built.inputs, built.output);
    let mut plan = Plan::new(built.graph, target.backend()?, runner::apart())?;
    let mut one = Vec::new();
    for threads in 1..=most {
        // Anew, as ops in place write over them.
        runner::set(&mut plan, &inputs, &data)?;
        let backend = target.backend()?;
        backend.set_threads(threads)?;
        plan.run(backend)?;
        plan.check_sentinels()?;
        let bytes = plan.read_bytes(&output)?;
        if threads == 1 {
            one = bytes;
        } else if bytes != one {
            let (dtype, [one, many]) = (output.dtype(), [&one, &bytes]);
            let [one, many] = [values_of(dtype, one)?, values_of(dtype, many)?];
            return Err(differs(threads, &one, &many));
        }
    }
    result.hash = Some(runner::hash_bits(&values_of(output.dtype(), &one)?));
    Ok(Outcome::Passed)
}

/// Says where, of values that differ in bits.
fn differs(threads: usize, one: &[f32], many: &[f32]) -> Failure {
    let places = || {
        let pairs = one.iter().zip(many).enumerate();
        pairs.filter(|(_, (one, many))| one.to_bits() != many.to_bits())
    };
    let first = places().next().map(|(index, (one, many))| {
        format!("index {index} is {one:e} with 1 thread and {many:e} with {threads}")
    });
    Failure::Threads(format!(
        "the number of threads changes {} of {} values: {}",
        places().count(),
        one.len(),
        first.unwrap_or_else(|| "in bits that no value shows".to_owned())
    ))
}

#[cfg(test)]
mod tests {
    use ggml_rs::{DType, Tasks, Tensor};

    use super::*;
    use crate::case::Leaves;
    use crate::data::Operand;

    /// An op whose closure knows its number of threads.
    struct Counted {
        /// Whether its result does, too.
        depends: bool,
    }

    impl Case for Counted {
        fn op(&self) -> &'static str {
            "CUSTOM"
        }

        fn params(&self) -> String {
            String::new()
        }

        fn operands(&self) -> Vec<Operand> {
            vec![Operand::new("x", DType::F32, [4, 16, 1, 1])]
        }

        fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
            let depends = self.depends;
            leaves[0].map_custom1(Tasks::Threads, move |task| {
                let value = if depends && task.count() > 2 {
                    2.0
                } else {
                    1.0
                };
                task.out::<f32>().expect("floats").fill(value);
            })
        }
    }

    #[test]
    fn bits_that_depend_on_threads_are_told() {
        let mut target = Target::open(Device::cpu().expect("always there")).expect("opens");
        let mut judged = |depends| {
            let case = Counted { depends };
            let mut result = CaseResult::new("CUSTOM", String::new(), Outcome::Passed);
            let outcome = judge(
                &case,
                &mut target,
                Settings::of_threads(1, 3),
                3,
                &mut result,
            );
            (outcome, result.hash.is_some())
        };
        assert_eq!(judged(false), (Ok(Outcome::Passed), true));
        let (outcome, hashed) = judged(true);
        let told = outcome.expect_err("2 is not 1").to_string();
        assert!(
            told.contains("64 of 64 values: index 0 is 1e0 with 1 thread and 2e0 with 3"),
            "{told}"
        );
        assert!(!hashed);
    }
}
