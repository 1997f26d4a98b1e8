//! What can go wrong, said with the step, the operands and the remedy.

mod place;

use std::fmt;
use std::panic::Location;

pub(crate) use place::{At, Call, Checked, Moved, Placed, Refused, Why, here};

use crate::dtype::DType;
use crate::files::FileError;
use crate::train::TrainError;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Every way in which a call of this crate can fail.
///
/// The mistakes of a caller ([`Error::Shape`], [`Error::DType`], [`Error::Layout`], [`Error::Param`])
/// are found before ggml is called, because ggml answers them by ending the process.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operands' shapes do not fit the op, or a shape is itself invalid.
    #[error("shape: {0}")]
    Shape(Box<OpError>),
    /// The op does not take an operand of this data type.
    #[error("dtype: {0}")]
    DType(Box<OpError>),
    /// The op does not take an operand with these strides.
    #[error("layout: {0}")]
    Layout(Box<OpError>),
    /// A parameter that is not a tensor is out of range, or a token belongs to another graph.
    #[error("parameter: {0}")]
    Param(Box<OpError>),
    /// A device or the registry of devices could not be used.
    #[error("{step}: {detail}")]
    Device {
        /// What was attempted, with the device where there is one.
        step: String,
        /// What was wrong and what to do about it.
        detail: String,
    },
    /// The device does not run a node of the graph.
    #[error(transparent)]
    Unsupported(#[from] Box<Unsupported>),
    /// A node between a marked tensor and the loss has no backward.
    #[error(transparent)]
    NotDifferentiable(#[from] Box<NotDifferentiable>),
    /// A trainer refused, or stopped.
    #[error("training: {0}")]
    Train(Box<TrainError>),
    /// Memory could not be obtained.
    #[error("allocate {bytes} bytes for {what}: {detail}")]
    Alloc {
        /// What the memory was for.
        what: String,
        /// How much was asked for; `usize::MAX` when the sum overflows.
        bytes: usize,
        /// Why it was refused.
        detail: String,
    },
    /// The device failed while it ran the graph. The backend is poisoned from here on.
    #[error("compute on {device}: {status}{}", .fault.as_deref().map(|f| format!(": {f}")).unwrap_or_default())]
    Compute {
        /// The device's name.
        device: String,
        /// ggml's status.
        status: String,
        /// What the device reported, where it reports faults (the simulated device does).
        fault: Option<String>,
    },
    /// An earlier compute failed on this backend, which ggml cannot recover: create a new one.
    #[error(
        "backend {device} is unusable since an earlier failure ({cause}): create a new Backend"
    )]
    Poisoned {
        /// The device's name.
        device: String,
        /// The first failure.
        cause: String,
    },
    /// The run was cancelled through a [`Cancel`](crate::Cancel). The backend stays usable, and the plan can run again.
    #[error("the run was cancelled")]
    Cancelled,
    /// Another thread uses the parameters, and the call does not wait: [`RunOptions::try_`](crate::RunOptions::try_), and every call
    /// inside of a closure of a custom op. It is matched as `Err(Error::Busy { .. })`.
    #[error(
        "the storage of parameter `{what}` is in use by another thread: try again later, or call Plan::run outside of closures, \
         which waits"
    )]
    Busy {
        /// The first parameter of the storage.
        what: String,
    },
    /// A tensor wrote past its end: bytes behind it changed.
    #[error(
        "{tensor}: {changed} of {len} sentinel bytes behind the tensor changed, first at +{first}"
    )]
    Overrun {
        /// The tensor's name.
        tensor: String,
        /// How many bytes differ from the pattern.
        changed: usize,
        /// How many bytes are watched.
        len: usize,
        /// Offset of the first changed byte behind the tensor's end.
        first: usize,
    },
    /// A file of tensors is malformed, lacks what was asked for, or could not be read or written.
    #[error("file: {0}")]
    File(Box<FileError>),
    /// ggml's own assertion was hit although our checks had passed: a bug of this crate.
    #[error("{step}: ggml reports: {message} (a check is missing in ggml-rs: please report it)")]
    Internal {
        /// The call that was made.
        step: &'static str,
        /// ggml's message.
        message: String,
    },
}

impl Error {
    /// A [`Error::Device`] from its two sentences.
    pub(crate) fn device(step: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Device {
            step: step.into(),
            detail: detail.into(),
        }
    }
}

/// One op that was refused while a graph was built or a plan was used.
#[derive(Debug, Clone, PartialEq)]
pub struct OpError {
    /// The op, by ggml's name in lower case (`out_prod`), or the call (`Plan::set_f32`).
    pub op: &'static str,
    /// What is wrong.
    pub detail: String,
    /// The operands, in the op's order.
    pub operands: Vec<Operand>,
    /// Where the caller wrote the op.
    pub at: &'static Location<'static>,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_refused(f, self.op, &self.operands, &self.detail)?;
        write!(f, " ({}:{})", self.at.file(), self.at.line())
    }
}

/// `op(operands): detail`.
fn write_refused(
    f: &mut fmt::Formatter<'_>,
    op: &str,
    operands: &[Operand],
    detail: &str,
) -> fmt::Result {
    write!(f, "{op}(")?;
    write_operands(f, operands)?;
    write!(f, "): {detail}")
}

/// An operand as an error reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// The operand's role in the op (`a`, `b`).
    pub role: &'static str,
    /// Its data type.
    pub dtype: DType,
    /// Its shape in ne order.
    pub ne: [usize; 4],
    /// Its strides in bytes.
    pub nb: [usize; 4],
    /// Whether the strides are those of a contiguous tensor, in which case they are not printed.
    pub contiguous: bool,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", self.role, self.dtype, self.ne)?;
        if !self.contiguous {
            write!(f, " nb={:?}", self.nb)?;
        }
        Ok(())
    }
}

fn write_operands(f: &mut fmt::Formatter<'_>, operands: &[Operand]) -> fmt::Result {
    for (i, operand) in operands.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{operand}")?;
    }
    Ok(())
}

/// ` [name]`, or nothing for a node that has no name.
fn write_node(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    match name {
        "" => Ok(()),
        name => write!(f, " [{name}]"),
    }
}

/// A node that a device does not run, and why.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct Unsupported {
    /// The device's name.
    pub device: String,
    /// The op, by ggml's name in upper case (`OUT_PROD`).
    pub op: String,
    /// The node's name in the graph.
    pub node: String,
    /// The operands, in the op's order.
    pub operands: Vec<Operand>,
    /// The reason: our own table's, or that the device's `supports_op` refused.
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not run {}(", self.device, self.op)?;
        write_operands(f, &self.operands)?;
        f.write_str(")")?;
        write_node(f, &self.node)?;
        write!(f, ": {}", self.reason)
    }
}

/// A node through which no gradient goes, and why.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct NotDifferentiable {
    /// The op, by ggml's name in upper case (`FLASH_ATTN_EXT`).
    pub op: String,
    /// The node's name in the graph; empty where it has none.
    pub node: String,
    /// The operands, in the op's order.
    pub operands: Vec<Operand>,
    /// The reason, and a way out where there is one.
    pub reason: String,
    /// Where the caller asked for the backward.
    pub at: &'static Location<'static>,
}

impl fmt::Display for NotDifferentiable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no gradient goes through {}(", self.op)?;
        write_operands(f, &self.operands)?;
        let (file, line) = (self.at.file(), self.at.line());
        f.write_str(")")?;
        write_node(f, &self.node)?;
        write!(f, ": {} ({file}:{line})", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(contiguous: bool) -> Operand {
        Operand {
            role: "a",
            dtype: DType::F32,
            ne: [256, 8, 1, 1],
            nb: [4, 1024, 8192, 8192],
            contiguous,
        }
    }

    #[test]
    fn errors_cross_threads() {
        fn assert_send_sync<T: Send + Sync + 'static>() {}
        assert_send_sync::<Error>();
    }

    #[test]
    fn an_op_error_names_op_operands_and_place() {
        let why = Why {
            op: "out_prod",
            detail: "ne[1] differs".into(),
            operands: vec![operand(true)],
        };
        let error = Refused::Shape(Box::new(why)).at(here());
        let text = error.to_string();
        assert!(
            text.starts_with("shape: out_prod(a: f32 [256, 8, 1, 1]): ne[1] differs ("),
            "{text}"
        );
        assert!(text.contains("error.rs:"), "{text}");
    }

    #[test]
    fn strides_are_printed_when_they_matter() {
        assert!(!operand(true).to_string().contains("nb="));
        assert!(
            operand(false)
                .to_string()
                .ends_with("nb=[4, 1024, 8192, 8192]")
        );
    }

    #[test]
    fn a_node_without_a_name_has_no_brackets() {
        let unsupported = |node: &str| Unsupported {
            device: "MTL0".into(),
            op: "CONT".into(),
            node: node.into(),
            operands: vec![operand(true)],
            reason: "why".into(),
        };
        let text = unsupported("").to_string();
        assert_eq!(text, "MTL0 does not run CONT(a: f32 [256, 8, 1, 1]): why");
        let text = unsupported("y").to_string();
        assert!(text.ends_with("1]) [y]: why"), "{text}");
        let at = here().location();
        let none = NotDifferentiable {
            op: "CONT".into(),
            node: String::new(),
            operands: vec![operand(true)],
            reason: "why".into(),
            at,
        };
        assert!(none.to_string().contains("1]): why ("), "{none}");
    }

    #[test]
    fn a_fault_is_part_of_the_message() {
        let error = Error::Compute {
            device: "MTL0".into(),
            status: "failed".into(),
            fault: Some("lane 3".into()),
        };
        assert_eq!(error.to_string(), "compute on MTL0: failed: lane 3");
    }
}
