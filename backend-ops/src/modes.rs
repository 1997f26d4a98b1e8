//! Runs the modes that have reports of their own, from the command line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;

use crate::case::Case;
use crate::cases::Set;
use crate::cli::{Cli, Environment, Mode, Output};
use crate::grad;
use crate::perf::{self, Perf, Sinks};
use crate::report::{ConsoleReport, Look, Report, RowFormat, RowReport};
use crate::session::{Session, Verdict};
use crate::support::{Alone, Query, Table, document};
use crate::verify;

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

/// Mode `barriers`.
///
/// # Errors
/// When a device has no verifier or the table cannot be written.
pub fn barriers(session: &Session, bar: &ProgressBar) -> anyhow::Result<Verdict> {
    #[cfg(feature = "verifier")]
    {
        let mut verdict = Verdict::Passed;
        for &device in &session.devices {
            let mut out = io::stdout();
            let seed = session.settings.seed;
            match verify::barriers::measure(&session.cases, device, seed, bar, &mut out)? {
                [_, 0] => verdict = Verdict::NothingRan,
                [reported, total] if reported < total => return Ok(Verdict::Failed),
                _ => {}
            }
        }
        Ok(verdict)
    }
    #[cfg(not(feature = "verifier"))]
    {
        let _ = (session, bar);
        anyhow::bail!("{}", verify::MISSING)
    }
}

/// Mode `perf`.
///
/// # Errors
/// When a report cannot be written or a device cannot be opened.
pub fn perf(cli: &Cli, session: Session, environment: &Environment) -> anyhow::Result<Verdict> {
    let perf = Perf {
        cases: session.cases,
        all_devices: session.all_devices,
        devices: session.devices,
        settings: session.settings,
    };
    let (people, rows) = outputs(cli, environment);
    let stdout = || Box::new(io::stdout()) as Box<dyn Write>;
    let mut sinks = Sinks::new(people, rows.map(|format| (stdout(), format)));
    Ok(match cli.set {
        Set::Staging => perf.run_staging(&mut sinks)?,
        Set::Blas => perf.run_blas(perf::blas::device()?, &mut sinks)?,
        _ => perf.run(&mut sinks)?,
    })
}

/// Mode `support`.
///
/// # Errors
/// When a report cannot be written.
pub fn support(cli: &Cli, session: Session, environment: &Environment) -> anyhow::Result<Verdict> {
    let mut query = Query {
        cases: session.cases,
        all_devices: session.all_devices,
        devices: session.devices,
        seed: session.settings.seed,
    };
    if cli.output == Output::Markdown {
        if cli.device.is_none() {
            // A table without the CPU would lack what everything else is compared with.
            query.devices = query.all_devices.clone();
        }
        return write_table(&query, cli.update.as_deref());
    }
    let (mut people, rows) = outputs(cli, environment);
    let Some(format) = rows else {
        return Ok(query.list(&mut people, &mut |_| Ok(()), &mut |_| Ok(()))?);
    };
    // One report, that two closures write to in turn.
    let rows = std::cell::RefCell::new(RowReport::new(io::stdout(), format));
    Ok(query.list(
        &mut people,
        &mut |header| rows.borrow_mut().begin(header),
        &mut |row| rows.borrow_mut().write_row(row),
    )?)
}

/// Prints the table and what Metal alone does not run, or writes them to a file, with that one's answers of devices that are not here.
fn write_table(query: &Query, update: Option<&Path>) -> anyhow::Result<Verdict> {
    let older = update.map(older).transpose()?.flatten();
    let table = match older.as_deref().and_then(Table::parse) {
        Some(older) => query.table().with_columns_of(&older),
        None => query.table(),
    };
    let metal = Alone::device(&query.devices);
    let alone = metal.map(|device| Alone::of(&table, device, &Set::Quick.cases()));
    write_text(&document(&table, alone.as_ref(), older.as_deref()), update)
}

/// What is in a file, if it is there.
fn older(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("--update {}", path.display())),
    }
}

/// Mode `grad` with `--output markdown`: which operands of the cases have a gradient. Nothing is computed.
///
/// # Errors
/// When the table cannot be made or written.
pub fn gradients(cli: &Cli, cases: &[Box<dyn Case>]) -> anyhow::Result<Verdict> {
    write_text(&grad::Table::of(cases)?.to_string(), cli.update.as_deref())
}

fn write_text(text: &str, update: Option<&Path>) -> anyhow::Result<Verdict> {
    match update {
        None => write!(io::stdout(), "{text}")?,
        Some(path) => {
            fs::write(path, text).with_context(|| format!("--update {}", path.display()))?
        }
    }
    Ok(Verdict::Passed)
}

type People<'a> = ConsoleReport<'a, Box<dyn Write>>;

/// A report for people, on stderr where rows take stdout, and the format of those.
fn outputs<'a>(cli: &'a Cli, environment: &'a Environment) -> (People<'a>, Option<RowFormat>) {
    let rows = match cli.output {
        Output::Console | Output::Markdown => None,
        Output::Sql => Some(RowFormat::Sql),
        Output::Csv => Some(RowFormat::Csv),
        Output::Json => Some(RowFormat::Json),
    };
    let (out, colors): (Box<dyn Write>, bool) = match rows {
        None => (Box::new(io::stdout()), console::colors_enabled()),
        Some(_) => (Box::new(io::stderr()), console::colors_enabled_stderr()),
    };
    let look = Look {
        colors,
        ..Look::default()
    };
    let repeat = |device: &str| cli.repeat(device, environment);
    (ConsoleReport::new(out, look, repeat), rows)
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
