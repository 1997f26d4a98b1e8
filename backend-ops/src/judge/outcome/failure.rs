//! Why a case failed, and how that travels between processes.

use std::fmt;

use ggml_rs::check::Difference;
use serde::{Deserialize, Serialize};

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
