//! What the workspace-level tests share: running `backend-ops` and reading its report, and building mutants.
#![deny(missing_docs)]

#[cfg(doctest)]
mod guide;
pub mod mutant;
pub mod products;

use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// A finished run of `backend-ops`.
#[derive(Debug)]
pub struct Run {
    /// How it ended; killed by a signal has no code.
    pub status: ExitStatus,
    /// Its report.
    pub stdout: String,
    /// Progress and errors.
    pub stderr: String,
}

/// Runs `backend-ops` with `args` in a process of its own: settings such as the tensor API hold for a whole process.
///
/// # Errors
/// When `exe` cannot be started.
pub fn backend_ops(exe: &str, args: &[&str]) -> Result<Run> {
    run(Command::new(exe).args(args))
}

/// The same, with the simulated device running in `order` what no barrier orders: see `METAL_SIM_ORDER`.
///
/// # Errors
/// When `exe` cannot be started.
pub fn backend_ops_in_order(exe: &str, args: &[&str], order: &str) -> Result<Run> {
    run(Command::new(exe).args(args).env("METAL_SIM_ORDER", order))
}

fn run(command: &mut Command) -> Result<Run> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    Ok(Run {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Run {
    /// The numbers of the closing line `P/N tests passed`; `None` when the run did not get that far.
    #[must_use]
    pub fn tally(&self) -> Option<(usize, usize)> {
        let line = self
            .stdout
            .lines()
            .find_map(|line| line.trim().strip_suffix(" tests passed"))?;
        let (passed, run) = line.split_once('/')?;
        Some((passed.parse().ok()?, run.parse().ok()?))
    }

    /// Case string and reason of every case that failed.
    #[must_use]
    pub fn failures(&self) -> Vec<(&str, &str)> {
        self.stdout
            .lines()
            .filter_map(|line| line.trim().strip_suffix(" FAIL")?.split_once("): "))
            .map(|(case, reason)| (case, reason.trim()))
            .collect()
    }

    /// The case that was running when the process died, if it died in one: its name is flushed before it starts.
    #[must_use]
    pub fn unfinished_case(&self) -> Option<&str> {
        self.stdout
            .lines()
            .last()?
            .trim_end()
            .strip_suffix("):")
            .map(str::trim_start)
    }

    /// Whether it refused `--tensor on` because this Mac's device has no tensor API, which it then repeats. Elsewhere the
    /// simulated device has one, so that such a refusal is a failure.
    #[must_use]
    pub fn lacks_tensor_api(&self) -> bool {
        if !cfg!(target_os = "macos") || self.status.code() != Some(2) {
            return false;
        }
        let refusal = |line: &&str| line.contains("has no tensor API");
        let found = self.stderr.lines().find(refusal);
        found.inspect(|line| eprintln!("{line}")).is_some()
    }

    /// Everything it printed, for a failing test to show.
    #[must_use]
    pub fn transcript(&self) -> String {
        format!(
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.status, self.stdout, self.stderr
        )
    }
}
