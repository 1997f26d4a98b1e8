//! What is in a GGUF file: its header, its metadata and its tensors. No tensor's values are read.
//!
//! ```sh
//! cargo run --release -p ggml-rs --example gguf_inspect -- model.gguf
//! ```

mod json;
mod table;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use ggml_rs::files::gguf::{Gguf, ReadOptions};

/// Shows what is in a GGUF file. Only its header is read, whatever the file's size.
#[derive(Debug, Parser)]
#[command(name = "gguf_inspect", after_help = AFTER_HELP)]
struct Arguments {
    /// The file.
    file: PathBuf,

    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,

    /// How many values of an array the table shows. JSON has all of them.
    #[arg(long, value_name = "COUNT", default_value_t = 6)]
    values: usize,

    /// Show only keys and tensors whose name contains this.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,

    /// The most memory for the value of one key, in MiB; a larger one is an error.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    max_value: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Lines for people.
    Table,
    /// One JSON object.
    Json,
}

const AFTER_HELP: &str = "\
Examples:
  gguf_inspect model.gguf
  gguf_inspect model.gguf --filter attn
  gguf_inspect model.gguf --output json | jq '.tensors[] | select(.type == \"q4_K\") | .name'

Exit codes:
  0  the file was read
  1  the file is missing, malformed, or the output could not be written
  2  the arguments are wrong";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Why nothing, or not everything, was shown.
#[derive(Debug)]
enum Failure {
    File(ggml_rs::Error),
    Output(io::Error),
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Output(error) => write!(f, "write the output: {error}"),
        }
    }
}

fn run(arguments: &Arguments, to: &mut impl Write) -> Result<(), Failure> {
    let bytes = arguments.max_value.saturating_mul(1 << 20);
    let usual = ReadOptions::default();
    let options = usual
        .max_value_bytes(bytes)
        .max_metadata_bytes(bytes.max(usual.max_metadata_bytes));
    let file = Gguf::open_with(&arguments.file, options).map_err(Failure::File)?;
    let header = file.header();
    let shown = match arguments.output {
        Output::Table => table::write(header, &arguments.filter, arguments.values, to),
        Output::Json => json::write(header, &arguments.filter, to),
    };
    shown.and_then(|()| to.flush()).map_err(Failure::Output)
}
