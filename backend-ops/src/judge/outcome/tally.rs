//! The sum over a device's cases.

use std::collections::BTreeMap;

use super::{CaseResult, Outcome};
use crate::modes::grad::Sum;

/// The case that came closest to its limit, or crossed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// The case string.
    pub case: String,
    /// Its NMSE.
    pub nmse: f64,
    /// Its limit.
    pub limit: f64,
}

impl Worst {
    /// NMSE as a share of the limit. A limit of 0 demands equal bits, so any error is beyond it.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.nmse == 0.0 {
            0.0
        } else {
            self.nmse / self.limit
        }
    }
}

/// The sum over a device's cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    passed: usize,
    failed: Vec<String>,
    unsupported: BTreeMap<String, usize>,
    worst: Option<Worst>,
    reduced: Vec<Reduced>,
    gradients: Sum,
}

/// A failing case and the smallest form of it that was found to fail alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// The case string.
    pub case: String,
    /// That of its smallest form.
    pub smallest: String,
    /// Its failure.
    pub failure: String,
    /// How many forms were run to find it.
    pub runs: usize,
    /// Whether the search ended because it had run as many as it may.
    pub cut_short: bool,
}

impl Tally {
    /// Counts a result.
    pub fn add(&mut self, result: &CaseResult) {
        match &result.outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed.push(result.name()),
            Outcome::Unsupported(reason) => {
                *self.unsupported.entry(reason.clone()).or_default() += 1
            }
        }
        if let Some(checked) = &result.gradient {
            self.gradients.add(result, checked);
        }
        if let Some(nmse) = result.nmse {
            let candidate = Worst {
                case: result.name(),
                nmse,
                limit: result.limit,
            };
            if self
                .worst
                .as_ref()
                .is_none_or(|worst| candidate.share() > worst.share())
            {
                self.worst = Some(candidate);
            }
        }
    }

    /// What was checked of gradients.
    #[must_use]
    pub fn gradients(&self) -> &Sum {
        &self.gradients
    }

    /// Cases that passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// The case strings that failed, in order.
    #[must_use]
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    /// Adds what a search for a smaller failing case found.
    pub fn add_reduced(&mut self, reduced: Reduced) {
        self.reduced.push(reduced);
    }

    /// What became of a failing case's search, if there was one.
    #[must_use]
    pub fn reduced(&self, case: &str) -> Option<&Reduced> {
        self.reduced.iter().find(|reduced| reduced.case == case)
    }

    /// Cases that ran: passed or failed.
    #[must_use]
    pub fn run(&self) -> usize {
        self.passed + self.failed.len()
    }

    /// Whether the device passed: some cases ran, and none failed.
    #[must_use]
    pub fn is_pass(&self) -> bool {
        self.passed > 0 && self.failed.is_empty()
    }

    /// Cases that the device does not support, by reason.
    #[must_use]
    pub fn unsupported(&self) -> &BTreeMap<String, usize> {
        &self.unsupported
    }

    /// All cases, run or not.
    #[must_use]
    pub fn total(&self) -> usize {
        self.run() + self.unsupported.values().sum::<usize>()
    }

    /// The case closest to its limit.
    #[must_use]
    pub fn worst(&self) -> Option<&Worst> {
        self.worst.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Failure;
    use super::*;

    fn result(params: &str, outcome: Outcome, nmse: Option<f64>) -> CaseResult {
        CaseResult {
            nmse,
            limit: 1e-7,
            ..CaseResult::new("ADD", params.into(), outcome)
        }
    }

    #[test]
    fn what_does_not_run_is_counted_apart() {
        let mut tally = Tally::default();
        tally.add(&result("1", Outcome::Passed, Some(1e-9)));
        tally.add(&result(
            "2",
            Outcome::Unsupported("src1 type f16".into()),
            None,
        ));
        tally.add(&result(
            "3",
            Outcome::Unsupported("src1 type f16".into()),
            None,
        ));
        tally.add(&result(
            "4",
            Outcome::Failed(Failure::Routing("x".into())),
            Some(1e-8),
        ));
        assert_eq!((tally.passed(), tally.run(), tally.total()), (1, 2, 4));
        assert_eq!(tally.unsupported()["src1 type f16"], 2);
        assert_eq!(tally.failed(), ["ADD(4)"]);
    }

    #[test]
    fn a_device_passes_when_something_ran_and_nothing_failed() {
        let mut tally = Tally::default();
        assert!(!tally.is_pass());
        tally.add(&result(
            "1",
            Outcome::Unsupported("src1 type f16".into()),
            None,
        ));
        assert!(!tally.is_pass());
        tally.add(&result("2", Outcome::Passed, None));
        assert!(tally.is_pass());
        tally.add(&result(
            "3",
            Outcome::Failed(Failure::Routing("x".into())),
            None,
        ));
        assert!(!tally.is_pass());
    }

    /// A worker process sends its results: nothing that a report prints may be lost on the way.
    #[test]
    fn the_worst_is_relative_to_its_own_limit() {
        let mut tally = Tally::default();
        tally.add(&CaseResult {
            limit: 5e-4,
            ..result("loose", Outcome::Passed, Some(1e-5))
        });
        tally.add(&CaseResult {
            limit: 1e-7,
            ..result("tight", Outcome::Passed, Some(5e-8))
        });
        assert_eq!(tally.worst().map(|w| w.case.as_str()), Some("ADD(tight)"));
    }

    #[test]
    fn an_exact_result_is_no_worst_case_of_a_zero_limit() {
        let exact = Worst {
            case: String::new(),
            nmse: 0.0,
            limit: 0.0,
        };
        assert_eq!(exact.share(), 0.0);
        assert!(
            Worst {
                nmse: 1e-12,
                ..exact
            }
            .share()
            .is_infinite()
        );
    }
}
