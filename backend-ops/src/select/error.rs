//! What is said when there is nothing to run.

/// A request that cannot be met. Each message is one line that says what exists.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `-o` names an op without cases.
    #[error("-o: no cases for operation \"{op}\" in set {set}; operations with cases: {}", known.join(", "))]
    UnknownOp {
        /// What was asked for.
        op: String,
        /// The set searched.
        set: String,
        /// The ops that have cases in it.
        known: Vec<&'static str>,
    },
    /// The filters leave nothing.
    #[error(
        "no case of set {set} matches {filters}; {candidates} cases are left without -p (run without it to see their parameters)"
    )]
    NoCase {
        /// The set searched.
        set: String,
        /// The filters as given.
        filters: String,
        /// How many cases `-o` alone selects.
        candidates: usize,
    },
    /// A line of `--test-file` names a case that there is not.
    #[error(
        "--test-file: line {line}: no case of set {set}, nor a smaller form of one, is called {name}"
    )]
    UnknownCase {
        /// The line's number, from 1.
        line: usize,
        /// The set searched.
        set: String,
        /// What was asked for.
        name: String,
    },
    /// `-b` or `--require` names a device that does not exist.
    #[error("{flag}: no device \"{name}\"; devices here: {}{}", known.join(", "), because(*reason))]
    UnknownDevice {
        /// The flag that named it.
        flag: &'static str,
        /// What was asked for.
        name: String,
        /// The devices that exist.
        known: Vec<&'static str>,
        /// Why there is no simulated one, if it could have been that.
        reason: Option<&'static str>,
    },
    /// There is no device but the CPU, which is tested only by name.
    #[error("no device to test: only the CPU exists here, and it is tested when named: pass -b CPU{}", because(*reason))]
    OnlyCpu {
        /// Why there is no simulated one, if it could have been that.
        reason: Option<&'static str>,
    },
    /// `--route` where nothing has it.
    #[error("--route: no selected case has this route; it is for -o {ops}")]
    NoRoute {
        /// The ops that have it.
        ops: &'static str,
    },
    /// `--route direct` with a staging that its kernel does not have.
    #[error("--route direct: its kernel stages in float; run without --staging half")]
    DirectIsFloat,
    /// `--staging` where nothing has one.
    #[error("--staging: no selected case has a staging; it is for -o OUT_PROD,MUL_MAT,MUL_MAT_ID")]
    NoProduct,
    /// `--staging` of one operand alone for an op that has both or none.
    #[error(
        "--staging: {op} stages both operands as float or half; one alone is for -o MUL_MAT_ID"
    )]
    NoStaging {
        /// The op.
        op: &'static str,
    },
    /// `--staging` for cases that run in every staging.
    #[error("--staging: the {op} cases of this set run in every staging; run without it")]
    EveryStaging {
        /// The op.
        op: &'static str,
    },
    /// `--tensor on` for a Metal device whose hardware or driver lacks it: ggml keeps to the simdgroup kernel there.
    #[error("--tensor on: {device} has no tensor API; run without the flag, or with --tensor off")]
    NoTensorApi {
        /// The device.
        device: &'static str,
    },
}

fn because(reason: Option<&str>) -> String {
    reason
        .map(|reason| format!("; {reason}"))
        .unwrap_or_default()
}
