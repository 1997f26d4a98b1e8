//! What became of a case, and the sum over a device.

use std::collections::BTreeMap;
use std::fmt;

use ggml_rs::check::Difference;
use ggml_rs::trace::Dispatch;
use serde::{Deserialize, Serialize};

use crate::exact::Exact;
use crate::grad::{Checked, Sum};
use crate::study::Arm;
use crate::wire;

/// Which result a device's output was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Against {
    /// Our own f64 implementation on dequantized operands.
    Reference,
    /// ggml's CPU backend, where it supports the case.
    CpuBackend,
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reference => "f64 reference",
            Self::CpuBackend => "CPU backend",
        })
    }
}

/// Why a case failed. Between processes its kind and its message travel.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(into = "Message", from = "Message")]
pub enum Failure {
    /// A value is NaN on either side.
    #[error("NaN at index {} (device={}, {against}={})", at.index, at.got, at.reference)]
    Nan {
        /// The first such element.
        at: Difference,
        /// What the output was compared with.
        against: Against,
    },
    /// One side is infinite and the other is not, or their signs differ.
    #[error("inf mismatch at index {} (device={}, {against}={})", at.index, at.got, at.reference)]
    Inf {
        /// The first such element.
        at: Difference,
        /// What the output was compared with.
        against: Against,
    },
    /// The error exceeds the op's limit.
    #[error("NMSE = {nmse:.3e} > {limit:.1e} against the {against}{}", worst_element(worst.as_ref(), *against))]
    Nmse {
        /// The normalised mean squared error.
        nmse: f64,
        /// The op's limit.
        limit: f64,
        /// The element that differs most.
        worst: Option<Difference>,
        /// What the output was compared with.
        against: Against,
    },
    /// Bytes behind a tensor were overwritten.
    #[error("sentinel mismatch: {0}")]
    Sentinel(String),
    /// The result is right, but another kernel than the one under test produced it.
    #[error("routing: {0}")]
    Routing(String),
    /// The graph could not be allocated or computed.
    #[error("{0}")]
    Compute(String),
    /// What the verifier of the simulated device found.
    #[error("{}", _0.join("; "))]
    Rules(Vec<String>),
    /// What the stagings of a case are held to, or a failure in one of them.
    #[error("{0}")]
    Study(String),
    /// Nothing to compare with: no definition in f64, and ggml's CPU backend is under test or does not support the case.
    #[error("no reference: the op has no definition in f64, and no other backend computed it")]
    NoReference,
    /// The set demands the case and the device does not support it.
    #[error("not supported, and this set allows no gap: {0}")]
    Required(String),
    /// A gradient that differs from central differences, or that could not be compared.
    #[error("{0}")]
    Gradient(String),
    /// A result that depends on the number of threads.
    #[error("{0}")]
    Threads(String),
    /// Bits that `--exact` demands.
    #[error("{0}")]
    Inexact(String),
    /// The process that computed it died.
    #[error("the process died: {0}")]
    Crashed(String),
    /// Rust code panicked: ours, or a custom op's.
    #[error("panicked: {0}")]
    Panicked(String),
    /// A failure in another process, in its words.
    #[error("{}", .0.text)]
    Reported(Message),
}

/// A failure as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    kind: Kind,
    text: String,
}

/// What kind of failure it is. A smaller case that fails in another way is another failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Wrong values.
    Values,
    /// Something written that does not belong to the result.
    Sentinel,
    /// Another kernel than the one under test.
    Routing,
    /// An error in place of a result.
    Error,
    /// No result, as the process ended.
    Crash,
}

impl Failure {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Nan { .. } | Self::Inf { .. } | Self::Nmse { .. } => Kind::Values,
            Self::Inexact(_) | Self::Study(_) | Self::Gradient(_) | Self::Threads(_) => {
                Kind::Values
            }
            Self::Rules(_) => Kind::Error,
            Self::Sentinel(_) => Kind::Sentinel,
            Self::Routing(_) => Kind::Routing,
            Self::Compute(_) | Self::Panicked(_) => Kind::Error,
            Self::NoReference | Self::Required(_) => Kind::Error,
            Self::Crashed(_) => Kind::Crash,
            Self::Reported(message) => message.kind,
        }
    }
}

impl From<Failure> for Message {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind(),
            text: failure.to_string(),
        }
    }
}

impl From<Message> for Failure {
    fn from(message: Message) -> Self {
        Self::Reported(message)
    }
}

fn worst_element(worst: Option<&Difference>, against: Against) -> String {
    let describe = |at: &Difference| {
        format!(
            ", worst at index {} (device={}, {against}={})",
            at.index, at.got, at.reference
        )
    };
    worst.map(describe).unwrap_or_default()
}

impl From<ggml_rs::Error> for Failure {
    fn from(error: ggml_rs::Error) -> Self {
        match error {
            ggml_rs::Error::Overrun { .. } => Self::Sentinel(error.to_string()),
            _ => Self::Compute(error.to_string()),
        }
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Everything agreed.
    Passed,
    /// Something did not.
    Failed(Failure),
    /// The device does not support it; the reason is what its `supports_op` was found to object to.
    Unsupported(String),
}

/// The full result of a case on a device. Between processes everything but its name travels, which both sides know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// ggml's op name.
    #[serde(skip)]
    pub op: &'static str,
    /// The parameters, as upstream prints them.
    #[serde(skip)]
    pub params: String,
    /// What became of it.
    pub outcome: Outcome,
    /// NMSE against the f64 reference, where the case ran that far and has no NaN.
    #[serde(with = "wire::option_f64")]
    pub nmse: Option<f64>,
    /// Hash of the result's bits, where the case ran that far: equal results have equal hashes, within one build of this
    /// program.
    pub hash: Option<u64>,
    /// The op's NMSE limit.
    #[serde(with = "wire::f64")]
    pub limit: f64,
    /// The pipelines dispatched, where the device records them.
    #[serde(with = "wire::dispatches")]
    pub kernels: Vec<Dispatch>,
    /// The ways in which a case that is a study was computed; empty for every other case.
    pub arms: Vec<Arm>,
    /// How near each comparison was, where that was asked for.
    pub exact: Vec<Exact>,
    /// What was looked at, where gradients were checked.
    pub gradient: Option<Box<Checked>>,
}

impl CaseResult {
    /// A result of which nothing but its outcome is known.
    #[must_use]
    pub fn new(op: &'static str, params: String, outcome: Outcome) -> Self {
        Self {
            op,
            params,
            outcome,
            nmse: None,
            hash: None,
            limit: 0.0,
            kernels: Vec::new(),
            arms: Vec::new(),
            exact: Vec::new(),
            gradient: None,
        }
    }

    /// The case string: `OP(params)`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}({})", self.op, self.params)
    }
}

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
    fn a_result_survives_the_way_between_processes() {
        let sent = CaseResult {
            hash: Some(u64::MAX),
            limit: f64::INFINITY,
            kernels: vec![Dispatch {
                pipeline: "kernel_add".into(),
                threadgroup_bytes: 32,
            }],
            ..result(
                "m=1",
                Outcome::Failed(Failure::Sentinel("out".into())),
                Some(f64::NEG_INFINITY),
            )
        };
        let text = serde_json::to_string(&sent).expect("everything has a form");
        let received: CaseResult = serde_json::from_str(&text).expect("the same type");
        let Outcome::Failed(failure) = &received.outcome else {
            panic!("{:?}", received.outcome)
        };
        assert_eq!(failure.to_string(), "sentinel mismatch: out");
        assert_eq!(failure.kind(), Kind::Sentinel);
        assert_eq!(
            (received.hash, received.nmse, received.limit),
            (sent.hash, sent.nmse, sent.limit)
        );
        assert_eq!(received.kernels, sent.kernels);
    }

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
