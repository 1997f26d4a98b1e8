//! `--list-ops` and `--show-coverage`: which of ggml's operations exist, and which of them have cases.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::io::{self, Write};

use crate::case::Case;

/// What upstream leaves out of the count: views, which compute nothing, and the families that are counted by their members.
const NOT_COUNTED: [&str; 7] = [
    "VIEW",
    "RESHAPE",
    "PERMUTE",
    "TRANSPOSE",
    "CONT",
    "GLU",
    "UNARY",
];

/// The names of all of ggml's operations; unary and gated operations appear as themselves too.
fn all_ops() -> BTreeSet<&'static str> {
    // The first operation is NONE: a leaf.
    let ops = (1..ggml_sys::GGML_OP_COUNT).map(|op| {
        // SAFETY: `op` is a value of the enum; ggml returns a string of its static table.
        unsafe { static_name(ggml_sys::ggml_op_name(op)) }
    });
    let unary = (0..ggml_sys::GGML_UNARY_OP_COUNT).map(|op| {
        // SAFETY: as above.
        unsafe { static_name(ggml_sys::ggml_unary_op_name(op)) }
    });
    let gated = (0..ggml_sys::GGML_GLU_OP_COUNT).map(|op| {
        // SAFETY: as above.
        unsafe { static_name(ggml_sys::ggml_glu_op_name(op)) }
    });
    ops.chain(unary).chain(gated).flatten().collect()
}

/// # Safety
/// `name` is null or a string that lives as long as the process.
unsafe fn static_name(name: *const c_char) -> Option<&'static str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, and static by the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}

/// Prints upstream's `--list-ops`.
///
/// # Errors
/// When the output cannot be written.
pub fn list_ops(out: &mut impl Write) -> io::Result<()> {
    let ops = all_ops();
    writeln!(out, "GGML operations:")?;
    print_list(out, "  ", &ops)?;
    writeln!(out, "\nTotal: {} operations", ops.len())
}

/// Prints upstream's `--show-coverage` for a list of cases.
///
/// # Errors
/// When the output cannot be written.
pub fn show(cases: &[Box<dyn Case>], out: &mut impl Write) -> io::Result<()> {
    let mut counted = all_ops();
    counted.retain(|op| !NOT_COUNTED.contains(op));
    let tested: BTreeSet<_> = cases.iter().map(|case| case.op()).collect();
    let (covered, uncovered): (BTreeSet<_>, BTreeSet<_>) =
        counted.iter().partition(|op| tested.contains(*op));

    writeln!(out, "Operations covered by tests ({}):", covered.len())?;
    print_list(out, "  ✓ ", &covered)?;
    writeln!(out, "\nOperations without tests ({}):", uncovered.len())?;
    print_list(out, "  ✗ ", &uncovered)?;
    writeln!(out, "\nCoverage Summary:")?;
    writeln!(out, "  Total operations: {}", counted.len())?;
    writeln!(out, "  Tested operations: {}", covered.len())?;
    writeln!(out, "  Untested operations: {}", uncovered.len())?;
    let percent = 100.0 * covered.len() as f64 / counted.len() as f64;
    writeln!(out, "  Coverage: {percent:.1}%")
}

fn print_list(out: &mut impl Write, mark: &str, ops: &BTreeSet<&str>) -> io::Result<()> {
    ops.iter().try_for_each(|op| writeln!(out, "{mark}{op}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Set;

    #[test]
    fn every_op_with_cases_exists() {
        let ops = all_ops();
        for case in Set::Upstream.cases() {
            assert_eq!(
                ops.contains(case.op()),
                !case.is_fusion(),
                "{} is an operation of ggml, or a fusion",
                case.op()
            );
        }
        assert!(
            ops.contains("RELU") && ops.contains("SWIGLU"),
            "members of families are listed"
        );
    }

    #[test]
    fn coverage_counts_what_has_cases() {
        let mut out = Vec::new();
        show(&Set::Gate.cases(), &mut out).expect("writing to memory");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(
            text.starts_with("Operations covered by tests (1):\n  ✓ OUT_PROD\n"),
            "{text}"
        );
        assert!(
            text.contains("  ✗ MUL_MAT\n") && !text.contains("RESHAPE"),
            "{text}"
        );
    }
}
