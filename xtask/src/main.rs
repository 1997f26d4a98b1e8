//! Maintainers' commands: `cargo xtask <command>`.

mod bindings;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Maintainers' commands of ggml-rs.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate ggml-sys/src/bindings.rs from the patched headers (needs libclang: `pip install libclang`, LIBCLANG_PATH)
    Bindings {
        /// Compare instead of writing, and fail where they differ
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bindings { check: true } => bindings::check(),
        Command::Bindings { check: false } => bindings::write(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
