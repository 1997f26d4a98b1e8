//! One case, twice.

use ggml_rs::sim::{Lockstep, Order, Verifier};
use ggml_rs::{Output, Plan};

use super::{Rules, known};
use crate::case::{Case, CaseGraph, Choices};
use crate::data::{OperandData, values_of};
use crate::engine::runner::{Computed, Target, prepare, run_traced};
use crate::judge::outcome::Failure;

/// Computes the case in both orders; the result is that of the ascending one.
pub(crate) fn compute(
    case: &dyn Case,
    choices: Choices,
    rules: Rules,
    target: &mut Target,
    data: &[OperandData],
) -> Result<Computed, Failure> {
    let verifier = Verifier::of(target.device()).ok_or_else(|| {
        Failure::Compute("--verify: only the simulated Metal device has a verifier".to_owned())
    })?;
    verifier.set_lockstep(match rules {
        Rules::Hardware => Lockstep::Hardware,
        Rules::Strict => Lockstep::Strict,
    });
    let lost = verifier.lost_findings();
    let ascending = run(case, choices, &verifier, Order::Ascending, target, data);
    let reversed = run(case, choices, &verifier, Order::Reversed, target, data);
    verifier.set_order(Order::Ascending);
    let findings = verifier.take_findings().into_iter();
    let unknown = findings.filter(|finding| !known::is_known(finding));
    let mut lines: Vec<_> = unknown.map(|finding| finding.to_string()).collect();
    lines.extend(beyond(verifier.lost_findings().saturating_sub(lost)));
    if !lines.is_empty() {
        return Err(Failure::Rules(lines));
    }
    let (ascending, reversed) = (ascending?, reversed?);
    match first_difference(&ascending.bytes, &reversed.bytes) {
        // A result that is a set may come in any order.
        Some(byte) if case.measure().is_in_order() => {
            Err(order_matters(&verifier, &reversed, byte))
        }
        _ => Ok(Computed {
            values: values_of(ascending.output.dtype(), &ascending.bytes)?,
            dispatches: ascending.dispatches,
        }),
    }
}

/// What to say of faults that the list of findings had no room for: they may be unknown ones.
fn beyond(lost: u64) -> Option<String> {
    (lost > 0)
        .then(|| format!("faults were seen {lost} times more, when the list of findings was full"))
}

/// A finished run, with the plan that knows where the result lies.
struct Finished {
    plan: Plan,
    output: Output,
    bytes: Vec<u8>,
    dispatches: Vec<ggml_rs::trace::Dispatch>,
}

fn run(
    case: &dyn Case,
    choices: Choices,
    verifier: &Verifier,
    order: Order,
    target: &mut Target,
    data: &[OperandData],
) -> Result<Finished, Failure> {
    verifier.set_order(order);
    let (mut plan, output) = prepare(CaseGraph::new(case, choices)?, target, data)?;
    let dispatches = run_traced(&mut plan, target)?;
    plan.check_sentinels()?;
    Ok(Finished {
        bytes: plan.read_bytes(&output)?,
        plan,
        output,
        dispatches,
    })
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// Names who wrote the first byte that differs.
fn order_matters(verifier: &Verifier, run: &Finished, byte: usize) -> Failure {
    let writer = match verifier.last_writer(&run.plan, &run.output, byte) {
        Some((kernel, site)) => format!("{kernel}, {}, {}", site.position, site.lane),
        None => "a kernel of which no more is known".to_owned(),
    };
    Failure::Rules(vec![format!(
        "order: byte {byte} of the result depends on the order of lanes, threadgroups or dispatches; written last by {writer}"
    )])
}
