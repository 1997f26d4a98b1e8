//! What became of a case, and the sum over a device.

mod failure;
mod tally;

pub use failure::{Against, Failure, Kind, Message};
pub use tally::{Reduced, Tally, Worst};

use ggml_rs::trace::Dispatch;
use serde::{Deserialize, Serialize};

use super::exact::Exact;
use super::study::Arm;
use super::wire;
use crate::modes::grad::Checked;

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
}
