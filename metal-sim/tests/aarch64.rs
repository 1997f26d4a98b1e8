//! The runtime's programs on AArch64: cross-compiled and run by qemu, so that the stack switch, the page size and the
//! sign of `char` are not those of x86-64.
//!
//! Ignored, with the reason, where a tool is missing; failed there if `GGML_RS_REQUIRE_TOOLS` is set.

mod common;

use std::process::ExitCode;
use std::sync::Arc;

use common::{Machine, PROGRAMS};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let machine = Arc::new(Machine::aarch64());
    let missing = machine.missing_tool().map(|tool| format!("no {tool}"));
    let required = std::env::var_os("GGML_RS_REQUIRE_TOOLS").is_some();
    let trials = PROGRAMS.iter().map(|&program| {
        let machine = Arc::clone(&machine);
        let reason = missing.clone();
        Trial::test(program.name, move || {
            if let Some(reason) = reason {
                return Err(reason.into());
            }
            machine.check(program);
            Ok(())
        })
        .with_kind(missing.clone().unwrap_or_default())
        .with_ignored_flag(missing.is_some() && !required)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
