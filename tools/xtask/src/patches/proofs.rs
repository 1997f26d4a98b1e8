//! The proofs that `series.toml` names: do they exist?
//!
//! A proof is a word that says where it lies, and what it is there:
//!
//! - `mutants: NAME`, a mutation in `tests/tests/mutants.rs`;
//! - `gate`, `gate --FLAG ...`, `gate (remark)`, or `gate: WORD cases`, where WORD stands in the op's cases;
//! - `backend-ops test -o OP ...`, where OP has cases;
//! - `test: PATH` or `test: PATH NAME`, a test file of this checkout, and a test in it.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use patch_series::read_text;

const MUTANTS: &str = "tests/tests/mutants.rs";
const GATE: &str = "tests/tests/gate.rs";
const CASES: &str = "backend-ops/src/cases";

/// Fails where `checkout` does not hold the proof.
pub fn check(checkout: &Path, proof: &str) -> Result<()> {
    if let Some(name) = proof.strip_prefix("mutants: ") {
        let entry = format!("name: \"{name}\"");
        ensure!(
            read_text(&checkout.join(MUTANTS))?.contains(&entry),
            "{MUTANTS} has no mutant {name}"
        );
        return Ok(());
    }
    if let Some(test) = proof.strip_prefix("test: ") {
        return check_test(checkout, test);
    }
    if let Some(arguments) = proof.strip_prefix("backend-ops test -o ") {
        let op = arguments.split_whitespace().next().unwrap_or_default();
        let quoted = format!("\"{op}\"");
        ensure!(
            cases_contain(checkout, &quoted)?,
            "{CASES} has no cases of {op:?}"
        );
        return Ok(());
    }
    match proof.strip_prefix("gate") {
        Some(rest) if rest.is_empty() || rest.starts_with(" (") || rest.starts_with(" --") => {
            ensure!(checkout.join(GATE).is_file(), "there is no {GATE}");
            Ok(())
        }
        Some(rest) if rest.starts_with(": ") => {
            let word = rest[2..].split_whitespace().next().unwrap_or_default();
            let found = !word.is_empty() && cases_contain(checkout, word)?;
            ensure!(found, "no case under {CASES} speaks of {word:?}");
            Ok(())
        }
        _ => bail!(
            "it names nothing that can be looked up: write `mutants: NAME`, `gate`, `gate: WORD cases`, \
             `backend-ops test -o OP` or `test: PATH NAME`"
        ),
    }
}

fn check_test(checkout: &Path, test: &str) -> Result<()> {
    let (path, name) = test.split_once(' ').unwrap_or((test, ""));
    let file = checkout.join(path);
    ensure!(file.is_file(), "there is no {path}");
    ensure!(
        read_text(&file)?.contains(name),
        "{path} has no test {name}"
    );
    Ok(())
}

/// Names of types are written as in Rust (`Q4_K`) or as in ggml (`q4_K`).
fn cases_contain(checkout: &Path, word: &str) -> Result<bool> {
    let word = word.to_lowercase();
    let texts = patch_series::read_folder(&checkout.join(CASES))?;
    Ok(texts
        .values()
        .any(|text| text.to_lowercase().contains(&word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::checkout;

    #[test]
    fn what_exists_is_found_and_what_does_not_is_named() {
        for proof in [
            "mutants: sb_at_4096",
            "gate",
            "gate --staging half",
            "gate (asserts the pipeline)",
            "gate: b_range cases",
            "backend-ops test -o OUT_PROD",
            "test: tests/tests/gate.rs float_staging_passes_all",
        ] {
            check(&checkout(), proof).unwrap();
        }
        for (proof, named) in [
            ("mutants: sb_at_4097", "no mutant sb_at_4097"),
            ("gate: warp_drive cases", "warp_drive"),
            ("gates", "names nothing"),
            ("I looked at it", "names nothing"),
            ("backend-ops test -o NO_SUCH_OP", "NO_SUCH_OP"),
            ("test: tests/tests/nothing.rs", "no tests/tests/nothing.rs"),
            (
                "test: tests/tests/gate.rs no_such_test",
                "no test no_such_test",
            ),
        ] {
            let error = check(&checkout(), proof).unwrap_err().to_string();
            assert!(error.contains(named), "{proof}: {error}");
        }
    }
}
