//! Runs the modes that have reports of their own, from the command line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;

use super::report::outputs;
use super::{Cli, Environment, Output};
use crate::case::Case;
use crate::cases::Set;
use crate::engine::session::{Session, Verdict};
use crate::modes::grad;
use crate::modes::perf::{self, Perf, Sinks};
use crate::modes::support::{Alone, Query, Table, document};
use crate::report::{Report, RowReport};

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
            match crate::modes::barriers::measure(&session.cases, device, seed, bar, &mut out)? {
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
        anyhow::bail!("{}", crate::judge::verify::MISSING)
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
