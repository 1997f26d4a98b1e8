//! The committed bindings are those that the patched headers give.
//!
//! Needs libclang: ignored where there is none, unless `GGML_RS_REQUIRE_TOOLS` is set.

use std::{env, fs, path::Path, process::ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

#[path = "../build/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "only the generator of bindings is used here, and no unit tests are run"
)]
mod build;

const COMMITTED: &str = include_str!("../src/bindings.rs");

fn main() -> ExitCode {
    let trials = vec![Trial::ignorable_test(
        "committed_bindings_match_the_headers",
        committed_bindings_match_the_headers,
    )];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn committed_bindings_match_the_headers() -> Result<Completion, Failed> {
    if let Err(missing) = build::bindings::find_libclang() {
        return if env::var_os("GGML_RS_REQUIRE_TOOLS").is_some() {
            Err(format!("GGML_RS_REQUIRE_TOOLS is set, but: {missing}").into())
        } else {
            Ok(Completion::ignored_with(missing))
        };
    }
    let include = Path::new(env!("GGML_SYS_OUT_DIR")).join("ggml/include");
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bindings-drift");
    let generated = build::bindings::generate(&include, &work)?;
    if generated == COMMITTED {
        return Ok(Completion::Completed);
    }
    let file = work.join("bindings.rs");
    fs::write(&file, &generated)?;
    let (number, committed, generated) = first_difference(COMMITTED, &generated);
    Err(format!(
        "run `cargo xtask bindings`; line {number} is\n  {committed}\nand should be\n  {generated}\nAll of it: {}",
        file.display()
    )
    .into())
}

/// The first line in which two texts differ, with its number.
fn first_difference<'t>(committed: &'t str, generated: &'t str) -> (usize, &'t str, &'t str) {
    let (mut a, mut b, mut number) = (committed.lines(), generated.lines(), 1);
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) if a == b => number += 1,
            (a, b) => {
                return (number, a.unwrap_or("(the end)"), b.unwrap_or("(the end)"));
            }
        }
    }
}
