//! Maintainers' commands: `cargo xtask <command>`.

use std::process::ExitCode;

use clap::Parser;
use xtask::cli::{Cli, run};

fn main() -> ExitCode {
    run(Cli::parse())
}
