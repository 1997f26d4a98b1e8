//! Where reports go.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Cli, Environment, Output};
use crate::engine::session::{Session, Verdict};
use crate::report::{ConsoleReport, Look, RowFormat, RowReport};

/// Runs the session with the reports that the command line asks for.
///
/// # Errors
/// When a report cannot be written or a device cannot be opened.
pub fn report(cli: &Cli, session: &Session, environment: &Environment) -> anyhow::Result<Verdict> {
    let bar = progress_bar();
    let rows = match cli.output {
        Output::Console | Output::Markdown => None,
        Output::Sql => Some(RowFormat::Sql),
        Output::Csv => Some(RowFormat::Csv),
        Output::Json => Some(RowFormat::Json),
    };
    let (out, colors): (Box<dyn Write>, bool) = match rows {
        None => (Box::new(io::stdout().lock()), console::colors_enabled()),
        // Rows must stay parseable: people read stderr then.
        Some(_) => (Box::new(io::stderr()), console::colors_enabled_stderr()),
    };
    let look = Look {
        colors,
        whole_lines: !bar.is_hidden(),
        kernels: cli.kernels,
    };
    let repeat = |device: &str| cli.repeat(device, environment);
    let mut people = ConsoleReport::new(out, look, repeat);
    let verdict = match rows {
        None => session.run(&mut [&mut people], &bar)?,
        Some(format) => {
            let mut rows = RowReport::new(io::stdout().lock(), format).mode(cli.mode.name());
            session.run(&mut [&mut people, &mut rows], &bar)?
        }
    };
    Ok(verdict)
}

/// A progress bar on stderr when it is a terminal; otherwise one that draws nothing.
#[must_use]
pub fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    // The name has a line of its own: it must not be cut short, because after a crash it is what names the culprit.
    let style = ProgressStyle::with_template("{msg}\n{bar:30} {pos}/{len} {elapsed}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub(super) type People<'a> = ConsoleReport<'a, Box<dyn Write>>;

/// A report for people, on stderr where rows take stdout, and the format of those.
pub(super) fn outputs<'a>(
    cli: &'a Cli,
    environment: &'a Environment,
) -> (People<'a>, Option<RowFormat>) {
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
