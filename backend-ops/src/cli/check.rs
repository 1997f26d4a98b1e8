//! Refuses flags that a mode does not have.

use super::{Cli, Mode, Output};
use crate::cases::Set;
use crate::judge::verify;

/// Refuses what a mode does not have.
///
/// # Errors
/// Says which mode has it.
pub fn check(cli: &Cli) -> anyhow::Result<()> {
    anyhow::ensure!(
        matches!(cli.mode, Mode::Support | Mode::Grad) || cli.output != Output::Markdown,
        "--output markdown: only modes support and grad print a table of operations"
    );
    anyhow::ensure!(
        cli.update.is_none() || cli.output == Output::Markdown,
        "--update: only with --output markdown"
    );
    anyhow::ensure!(
        cli.mode == Mode::Perf || !cli.set.is_for_perf(),
        "--set {}: its cases are only measured; use mode perf",
        cli.set
    );
    anyhow::ensure!(
        cli.mode == Mode::Test || cli.exact.is_none(),
        "--exact: only mode test compares elements"
    );
    let judges = matches!(cli.mode, Mode::Test | Mode::Grad | Mode::Threads);
    anyhow::ensure!(
        judges || !cli.bisect,
        "--bisect: only modes test, grad and threads have cases that fail"
    );
    anyhow::ensure!(
        judges || cli.jobs.is_none_or(|jobs| jobs == 1),
        "-j: only modes test, grad and threads run cases side by side"
    );
    anyhow::ensure!(
        cli.mode == Mode::Threads || cli.threads.is_none(),
        "--threads: only mode threads compares numbers of them"
    );
    anyhow::ensure!(
        cli.set != Set::Staging || cli.staging.is_none(),
        "--staging: set staging measures every staging; run without it"
    );
    anyhow::ensure!(
        cli.set != Set::Blas || cli.device.is_none(),
        "-b: set blas measures the CPU beside BLAS; run without it"
    );
    anyhow::ensure!(
        verify::is_built_in() || cli.verify.is_none() && cli.mode != Mode::Barriers,
        "--verify and mode barriers: {}",
        verify::MISSING
    );
    anyhow::ensure!(
        cli.verify.is_none() || cli.mode == Mode::Test && cli.set != Set::GroundTruth,
        "--verify: only in mode test, and not for set ground-truth, whose cases run in every staging"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_a_mode_lacks_is_refused() {
        let checked = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["backend-ops"], args].concat()).expect("parses");
            check(&cli).map_err(|error| error.to_string())
        };
        for (args, part) in [
            (
                &["test", "--output", "markdown"][..],
                "only modes support and grad",
            ),
            (&["support", "--update", "x"], "only with --output markdown"),
            (&["grad", "--exact"], "only mode test"),
            (&["test", "--threads", "4"], "only mode threads"),
            (&["perf", "--bisect"], "only modes test, grad and threads"),
            (&["support", "-j", "2"], "only modes test, grad and threads"),
            (&["test", "--set", "staging"], "use mode perf"),
            (&["support", "--set", "perf"], "use mode perf"),
            (
                &["perf", "--set", "staging", "--staging", "half"],
                "every staging",
            ),
            (&["perf", "--set", "blas", "-b", "CPU"], "run without it"),
            (&["test", "--set", "blas"], "use mode perf"),
        ] {
            let reason = checked(args).expect_err(part);
            assert!(reason.contains(part), "{args:?}: {reason}");
        }
        assert_eq!(
            checked(&["support", "--output", "markdown", "--update", "x"]),
            Ok(())
        );
        assert_eq!(checked(&["grad", "--output", "markdown"]), Ok(()));
        assert_eq!(checked(&["perf", "--set", "staging"]), Ok(()));
    }
}
