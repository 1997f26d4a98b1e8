//! What the flags ask of cases and of worker processes.

use anyhow::Context;

use super::{Cli, Mode};
use crate::case::Choices;
use crate::engine::pool::Recipe;
use crate::engine::runner::Settings;
use crate::engine::session::Workers;
use crate::modes::threads;

/// What every case is run with.
#[must_use]
pub fn settings(cli: &Cli) -> Settings {
    Settings {
        seed: cli.seed.0,
        choices: Choices {
            staging: cli.staging.map(Into::into),
            route: cli.route.map(Into::into),
        },
        require_support: cli.case_set().requires_support(),
        exact: cli.exactness(),
        verify: cli.verify,
        gradients: cli.mode == Mode::Grad,
        threads: (cli.mode == Mode::Threads)
            .then(|| cli.threads.map_or(threads::MOST, usize::from)),
    }
}

/// How this program is started as a worker. The seed is drawn by now, and everything else that shapes a case is passed on.
///
/// # Errors
/// When this program does not know where it lies.
pub fn workers(cli: &Cli) -> anyhow::Result<Option<Workers>> {
    if cli.jobs == Some(1) {
        return Ok(None);
    }
    let mut args = vec![cli.mode.name().to_owned()];
    args.extend(cli.flags_of_cases());
    args.push("--worker".to_owned());
    Ok(Some(Workers {
        // Each case takes several of the machine's threads by itself.
        count: match (cli.jobs, cli.mode) {
            (None, Mode::Threads) => Some(1),
            (jobs, _) => jobs.map(usize::from),
        },
        recipe: Recipe {
            program: std::env::current_exe().context("find this program; -j 1 runs without")?,
            args,
            threads: 1,
        },
    }))
}
