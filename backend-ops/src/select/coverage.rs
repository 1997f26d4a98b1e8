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

/// Operations that no case can test, and why.
const UNTESTABLE: [(&str, &str); 1] = [(
    "FLASH_ATTN_BACK",
    "ggml's function for it asserts at its first line, whatever it is given",
)];

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

/// The operations that count, with cases and without. A fusion is no operation: those that it consists of have cases of their
/// own.
fn covered_and_not(cases: &[Box<dyn Case>]) -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let mut counted = all_ops();
    counted.retain(|op| !NOT_COUNTED.contains(op));
    let single = cases.iter().filter(|case| !case.is_fusion());
    let tested: BTreeSet<_> = single.map(|case| case.op()).collect();
    counted.iter().partition(|op| tested.contains(*op))
}

fn why_not(op: &str) -> &'static str {
    let reason = UNTESTABLE.iter().find(|(untestable, _)| *untestable == op);
    reason.map_or("no case in this list", |(_, reason)| reason)
}

/// Prints upstream's `--show-coverage` for a list of cases, with a reason for each operation that has none.
///
/// # Errors
/// When the output cannot be written.
pub fn show(cases: &[Box<dyn Case>], out: &mut impl Write) -> io::Result<()> {
    let (covered, uncovered) = covered_and_not(cases);
    let counted = covered.len() + uncovered.len();

    writeln!(out, "Operations covered by tests ({}):", covered.len())?;
    print_list(out, "  ✓ ", &covered)?;
    writeln!(out, "\nOperations without tests ({}):", uncovered.len())?;
    for op in &uncovered {
        writeln!(out, "  ✗ {op}: {}", why_not(op))?;
    }
    writeln!(out, "\nCoverage Summary:")?;
    writeln!(out, "  Total operations: {counted}")?;
    writeln!(out, "  Tested operations: {}", covered.len())?;
    writeln!(out, "  Untested operations: {}", uncovered.len())?;
    let percent = 100.0 * covered.len() as f64 / counted as f64;
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
            assert!(
                ops.contains(case.op()) || case.is_fusion(),
                "{} is no operation of ggml, and no fusion",
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
            text.contains("  ✗ MUL_MAT: no case in this list\n") && !text.contains("RESHAPE"),
            "{text}"
        );
    }

    /// An operation that gets cases must leave the list of those that cannot have any, and none may lose its cases.
    #[test]
    fn only_what_cannot_be_tested_has_no_case() {
        let (_, uncovered) = covered_and_not(&Set::Upstream.cases());
        let untestable = UNTESTABLE.iter().map(|(op, _)| *op).collect();
        assert_eq!(uncovered, untestable);
    }
}
