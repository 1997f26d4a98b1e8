//! What a gradient check looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ggml_rs::check::{GradientReport, differentiable_ops};
use serde::{Deserialize, Serialize};

use crate::judge::outcome::{CaseResult, Outcome};

/// What was checked of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The operands whose gradients were checked.
    pub trained: Vec<String>,
    /// The other operands of F32, each with the reason.
    pub untrained: BTreeMap<String, String>,
    /// Elements compared with differences.
    pub elements: usize,
    /// Elements of the trained operands: the device's are compared with the backward in f64.
    pub of: usize,
    /// Elements left out: the loss has a kink there.
    pub kinks: usize,
    /// The ops of the graph, without its backward.
    pub ops: BTreeSet<String>,
    /// The ops that the CPU computed for the device.
    pub on_cpu: BTreeSet<String>,
    /// The largest error of the device, relative to the gradient's size.
    pub error: f64,
}

impl Checked {
    pub(super) fn new(
        report: &GradientReport,
        trained: Vec<String>,
        untrained: BTreeMap<String, String>,
    ) -> Self {
        Self {
            trained,
            untrained,
            elements: report.elements,
            of: report.of,
            kinks: report.kinks,
            ops: report.ops.clone(),
            on_cpu: report.on_cpu.clone(),
            // A JSON number is finite.
            error: report.device.error.min(f64::MAX),
        }
    }

    /// Whether there is more to say than that every element of every operand was compared.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.elements < self.of || !self.untrained.is_empty()
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} elements by differences",
            self.elements, self.of
        )?;
        if self.kinks > 0 {
            write!(f, ", {} at kinks left out", self.kinks)?;
        }
        for (operand, why) in &self.untrained {
            write!(f, "; without `{operand}`: {why}")?;
        }
        Ok(())
    }
}

/// Names with commas between them.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.into_iter().map(String::as_str).collect();
    names.join(", ")
}

/// The sum over a device's cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    cases: usize,
    elements: usize,
    of: usize,
    kinks: usize,
    kinked: BTreeMap<String, usize>,
    passed: BTreeSet<String>,
    operands: BTreeMap<&'static str, Operands>,
    /// Cases that are right with the help of the CPU, and the ops that it computed in all cases.
    helped: usize,
    on_cpu: BTreeSet<String>,
    worst: Option<(f64, String)>,
}

/// The operands of an op's cases.
#[derive(Clone, Debug, Default, PartialEq)]
struct Operands {
    trained: BTreeSet<String>,
    untrained: BTreeSet<String>,
}

impl Sum {
    /// Counts the result of a case that was checked.
    pub fn add(&mut self, result: &CaseResult, checked: &Checked) {
        self.cases += 1;
        self.elements += checked.elements;
        self.of += checked.of;
        self.kinks += checked.kinks;
        if checked.kinks > 0 {
            self.kinked.insert(result.name(), checked.kinks);
        }
        match &result.outcome {
            Outcome::Passed => self.passed.extend(checked.ops.iter().cloned()),
            Outcome::Unsupported(_) => self.helped += 1,
            Outcome::Failed(_) => {}
        }
        let operands = self.operands.entry(result.op).or_default();
        operands.trained.extend(checked.trained.iter().cloned());
        (operands.untrained).extend(checked.untrained.keys().cloned());
        self.on_cpu.extend(checked.on_cpu.iter().cloned());
        self.compare(result, checked.error);
    }

    fn compare(&mut self, result: &CaseResult, error: f64) {
        let (limit, case) = (result.limit, result.name());
        let share = error / limit;
        if self.worst.as_ref().is_none_or(|(most, _)| share > *most) {
            let what = format!("error {error:.1e} of {limit:.1e} allowed: {case}");
            self.worst = Some((share, what));
        }
    }

    /// Whether gradients were checked at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cases == 0
    }

    /// The sum in words, a line each.
    ///
    /// # Errors
    /// On a processor that ggml was not compiled for.
    pub fn lines(&self) -> ggml_rs::Result<Vec<String>> {
        let all = differentiable_ops()?;
        let missing: Vec<_> = all.difference(&self.passed).map(|op| &**op).collect();
        let mut lines = vec![
            format!(
                "gradients: {} elements by differences, {} in all; {} at kinks left out, in {} cases",
                self.elements,
                self.of,
                self.kinks,
                self.kinked.len()
            ),
            format!(
                "ops with a backward in a case that passed: {} of {}",
                all.len() - missing.len(),
                all.len()
            ),
        ];
        if !missing.is_empty() {
            lines.push(format!("  missing: {}", missing.join(", ")));
        }
        lines.extend(self.never_trained());
        if self.helped > 0 {
            lines.push(format!(
                "{} cases are right with the help of the CPU, and no passes of the device, which lacks {}",
                self.helped,
                listed(&self.on_cpu)
            ));
        }
        lines.extend(self.worst.iter().map(|(_, what)| format!("worst {what}")));
        Ok(lines)
    }

    /// The operands whose gradients no case checks, of ops of which others are checked.
    fn never_trained(&self) -> Option<String> {
        let ops = self.operands.iter().filter_map(|(op, operands)| {
            let never = operands.untrained.difference(&operands.trained);
            let never = listed(never);
            (!never.is_empty()).then(|| format!("{op} {never}"))
        });
        let ops: Vec<_> = ops.collect();
        (!ops.is_empty()).then(|| format!("operands never checked: {}", ops.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::outcome::Failure;

    fn checked(kinks: usize, error: f64) -> Checked {
        Checked {
            trained: vec!["a".to_owned()],
            untrained: BTreeMap::from([("b".to_owned(), "none".to_owned())]),
            elements: 10 - kinks,
            of: 20,
            kinks,
            ops: BTreeSet::from(["MUL".to_owned()]),
            on_cpu: BTreeSet::new(),
            error,
        }
    }

    fn result(params: &str, outcome: Outcome) -> CaseResult {
        CaseResult {
            limit: 1e-5,
            ..CaseResult::new("MUL", params.to_owned(), outcome)
        }
    }

    fn failed() -> Outcome {
        Outcome::Failed(Failure::Gradient("wrong".to_owned()))
    }

    #[test]
    fn a_case_says_what_was_looked_at() {
        assert_eq!(
            checked(2, 0.0).to_string(),
            "8 of 20 elements by differences, 2 at kinks left out; without `b`: none"
        );
        let of_one = Checked {
            elements: 20,
            ..checked(0, 0.0)
        };
        let whole = Checked {
            untrained: BTreeMap::new(),
            ..of_one.clone()
        };
        assert!(!whole.is_partial() && of_one.is_partial() && checked(0, 0.0).is_partial());
    }

    #[test]
    fn ops_count_where_their_case_passed() {
        let mut sum = Sum::default();
        assert!(sum.is_empty());
        sum.add(&result("1", failed()), &checked(0, 1e-3));
        let all = differentiable_ops().expect("a CPU").len();
        assert!(sum.lines().expect("a CPU")[1].contains(&format!(": 0 of {all}")));
        sum.add(&result("2", Outcome::Passed), &checked(3, 1e-6));
        let lines = sum.lines().expect("a CPU");
        assert!(
            lines[0].ends_with("3 at kinks left out, in 1 cases"),
            "{lines:?}"
        );
        assert!(lines[1].contains(&format!(": 1 of {all}")), "{lines:?}");
        assert!(
            lines.last().is_some_and(|line| line.contains("MUL(1)")),
            "{lines:?}"
        );
    }

    #[test]
    fn what_the_cpu_did_for_a_device_counts_apart() {
        let mut sum = Sum::default();
        let helped = Checked {
            on_cpu: BTreeSet::from(["REPEAT_BACK".to_owned()]),
            ..checked(0, 0.0)
        };
        sum.add(
            &result("1", Outcome::Unsupported("CPU".to_owned())),
            &helped,
        );
        let lines = sum.lines().expect("a CPU");
        assert!(lines[1].contains(": 0 of "), "{lines:?}");
        let apart = "1 cases are right with the help of the CPU, and no passes of the device, which lacks REPEAT_BACK";
        assert!(lines.iter().any(|line| line == apart), "{lines:?}");
    }

    #[test]
    fn operands_that_no_case_checks_are_named() {
        let mut sum = Sum::default();
        sum.add(&result("1", Outcome::Passed), &checked(0, 0.0));
        let line = |sum: &Sum| sum.never_trained();
        assert_eq!(line(&sum).as_deref(), Some("operands never checked: MUL b"));
        let both = Checked {
            trained: vec!["b".to_owned()],
            ..checked(0, 0.0)
        };
        sum.add(&result("2", Outcome::Passed), &both);
        assert_eq!(line(&sum), None);
    }
}
