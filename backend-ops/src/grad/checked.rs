//! What a gradient check looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ggml_rs::check::{GradientReport, differentiable_ops};
use serde::{Deserialize, Serialize};

/// What was checked of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
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
    pub(super) fn new(report: &GradientReport) -> Self {
        Self {
            elements: report.elements,
            of: report.of,
            kinks: report.kinks,
            ops: report.ops.clone(),
            on_cpu: report.on_cpu.clone(),
            // A JSON number is finite.
            error: report.device.error.min(f64::MAX),
        }
    }

    /// Whether there is more to say than that every element was compared.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.elements < self.of || !self.on_cpu.is_empty()
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
        write_on_cpu(f, &self.on_cpu)
    }
}

fn write_on_cpu(f: &mut fmt::Formatter<'_>, ops: &BTreeSet<String>) -> fmt::Result {
    if ops.is_empty() {
        return Ok(());
    }
    let ops: Vec<_> = ops.iter().map(|op| &**op).collect();
    write!(f, "; on the CPU: {}", ops.join(", "))
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
    on_cpu: BTreeSet<String>,
    worst: Option<(f64, String)>,
}

impl Sum {
    /// Counts a case: by its name, and whether it passed.
    pub fn add(&mut self, case: &str, limit: f64, passed: bool, checked: &Checked) {
        self.cases += 1;
        self.elements += checked.elements;
        self.of += checked.of;
        self.kinks += checked.kinks;
        if checked.kinks > 0 {
            self.kinked.insert(case.to_owned(), checked.kinks);
        }
        if passed {
            self.passed.extend(checked.ops.iter().cloned());
        }
        self.on_cpu.extend(checked.on_cpu.iter().cloned());
        let share = checked.error / limit;
        if self.worst.as_ref().is_none_or(|(most, _)| share > *most) {
            let what = format!("error {:.1e} of {limit:.1e} allowed: {case}", checked.error);
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
        if !self.on_cpu.is_empty() {
            let ops: Vec<_> = self.on_cpu.iter().map(|op| &**op).collect();
            lines.push(format!(
                "on the CPU, as the device lacks them: {}",
                ops.join(", ")
            ));
        }
        lines.extend(self.worst.iter().map(|(_, what)| format!("worst {what}")));
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(kinks: usize, error: f64) -> Checked {
        Checked {
            elements: 10 - kinks,
            of: 20,
            kinks,
            ops: BTreeSet::from(["MUL".to_owned()]),
            on_cpu: BTreeSet::from(["REPEAT_BACK".to_owned()]),
            error,
        }
    }

    #[test]
    fn a_case_says_what_was_looked_at() {
        assert_eq!(
            checked(2, 0.0).to_string(),
            "8 of 20 elements by differences, 2 at kinks left out; on the CPU: REPEAT_BACK"
        );
        let whole = Checked {
            elements: 20,
            on_cpu: BTreeSet::new(),
            ..checked(0, 0.0)
        };
        assert!(!whole.is_partial() && checked(0, 0.0).is_partial());
    }

    #[test]
    fn ops_count_where_their_case_passed() {
        let mut sum = Sum::default();
        assert!(sum.is_empty());
        sum.add("MUL(1)", 1e-5, false, &checked(0, 1e-3));
        let all = differentiable_ops().expect("a CPU").len();
        assert!(sum.lines().expect("a CPU")[1].contains(&format!(": 0 of {all}")));
        sum.add("MUL(2)", 1e-5, true, &checked(3, 1e-6));
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
}
