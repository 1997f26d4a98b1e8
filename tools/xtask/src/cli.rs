//! The command line.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::{
    asserts, bindings, findings, mac_report, names,
    page::Page,
    patches,
    pin::{Pin, checkout},
    upgrade::{self, Outcome},
};

/// A check found something wrong.
const FOUND: u8 = 1;
/// The command could not do its work. clap uses the same code for wrong usage.
const REFUSED: u8 = 2;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, and nothing is wrong
  1  a check found something wrong
  2  wrong usage, or the command refused or could not do its work";

const PATCHES_HELP: &str = "\
The working tree is a git repository of ggml's root. Its first commit is the pinned ggml, untouched; the second, `overlay`,
holds our whole files (patches/src); then follows one commit per patch, called as the patch. Edit it with any git command:
amend a commit, or `git commit --fixup` and `git rebase --interactive --autosquash refs/xtask/pristine`. A file that ggml does
not have is written to patches/src, whichever commit it is in; a change to a file of ggml's to the patch of its commit.
GGML_SRC_DIR cannot point there: the build would apply the series again.

Examples:
  cargo xtask patches edit /tmp/ggml
  cargo xtask patches refresh /tmp/ggml
  cargo xtask patches verify

A new patch: an entry in patches/series.toml, and a commit with the entry's name (NNNN-what-it-does) as its subject, at the same
position. To drop one: take out its entry, its file and its commit. Uses git.

Exit codes:
  0  done, and nothing is wrong
  1  verify found something wrong
  2  wrong usage, or the command refused or could not do its work";

const ASSERTS_HELP: &str = "\
The snapshot holds, for every public function of ggml.h, ggml-alloc.h and ggml-backend.h, the conditions that it asserts itself or
through static helpers of its file. A condition that changes is a check of ggml-rs that may have to change: read the function,
change its check in ggml-rs/src, then write the snapshot. tools/xtask/src/asserts/source.rs says what the reader does not see.

--unchecked is a list to read, not a verdict: a wrapper counts as checked where its function names a check or a Refusal.

Exit codes:
  0  written, or nothing differs
  1  --check found a difference
  2  wrong usage, or the sources could not be read";

const NAMES_HELP: &str = "\
The index is made of the `#[doc(alias = \"..\")]` of ggml-rs's public items, of ggml-sys's bindings and of the decisions in
ggml-rs/tests/coverage/table.rs. An alias that ggml's headers do not have, or on something that no user can name, is an error.

Exit codes:
  0  written, or nothing differs
  1  --check found a difference
  2  wrong usage, or the sources could not be read";

const FINDINGS_HELP: &str = "\
Each fault of ggml that a patch mends is a [[patch.finding]] of its entry in patches/series.toml, whose header names the fields. The
tables stand between two marks in docs/findings.md (by section, with reproducers) and in CHANGELOG.md (by patch); what is
around them is written by hand.

Exit codes:
  0  written, or nothing differs
  1  --check found a difference
  2  wrong usage, a finding that is not whole, or a file without the marks";

const UPGRADE_HELP: &str = "\
Follows the checklist in vendor/README.md as far as a program can: pins the version, lets cargo record its checksum, tries every
hunk of the series, generates the bindings where libclang is there, and lists what must be read. Refresh hunks that fail with
`cargo xtask patches` after correcting the diffs.

Examples:
  cargo xtask upgrade 0.1.162 --dry-run
  cargo xtask upgrade 0.1.162

Exit codes:
  0  every hunk fits (or the version is the pinned one)
  1  a hunk does not fit, or the bindings could not be generated
  2  wrong usage, no such version, or a dependency of it without a stub; vendor/ is unchanged";

const MAC_REPORT_HELP: &str = "\
The steps: the gate with the tensor API off and on and with float and half staging; upstream's cases; the
float-staged products and the ground-truth set; the staging bench; nm on the
archive. A step that fails or cannot run is reported as such, and the next one follows. Four b_range cases fail with half staging
and the tensor API off: that is what is measured.

Examples:
  cargo xtask mac-report                                   on a Mac
  cargo xtask mac-report --simulated --gate-only --out /tmp/report.md

Exit codes:
  0  every step ran and was as expected
  1  a step failed or could not run: the report says which
  2  wrong usage, no Mac, or the report could not be written";

/// Maintainers' commands of ggml-rs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Generate ggml-sys/src/bindings.rs from the patched headers (needs libclang: `pip install libclang`, LIBCLANG_PATH)
    Bindings {
        /// Compare instead of writing, and fail where they differ
        #[arg(long)]
        check: bool,
    },
    /// Write ggml-rs/asserts.txt: what each public function of the patched ggml asserts
    #[command(after_help = ASSERTS_HELP)]
    Asserts {
        /// Compare instead of writing, and fail where they differ
        #[arg(long)]
        check: bool,
        /// List wrapped functions that assert something and whose wrapper shows no check of its own
        #[arg(long, conflicts_with = "check")]
        unchecked: bool,
    },
    /// Write docs/guide/names.md: what ggml-rs calls each function of ggml, made of the doc aliases
    #[command(after_help = NAMES_HELP)]
    Names {
        /// Compare instead of writing, and fail where they differ
        #[arg(long)]
        check: bool,
    },
    /// Write the tables of docs/findings.md and CHANGELOG.md: the faults of ggml that the patches mend
    #[command(after_help = FINDINGS_HELP)]
    Findings {
        /// Compare instead of writing, and fail where they differ
        #[arg(long)]
        check: bool,
    },
    /// Edit the patch series as commits of a git working tree
    #[command(after_help = PATCHES_HELP)]
    Patches {
        #[command(subcommand)]
        command: Patches,
    },
    /// Pin another version of the package that carries ggml, and say what has to be done
    #[command(after_help = UPGRADE_HELP)]
    Upgrade {
        /// The package's version, for instance 0.1.162
        version: String,
        /// Try everything, change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Run everything that needs a Mac and write one report to attach to an issue
    #[command(after_help = MAC_REPORT_HELP)]
    MacReport {
        /// Where to write the report
        #[arg(long, value_name = "FILE", default_value = "mac-report.md")]
        out: PathBuf,
        /// Ask the simulated device, on a host that is no Mac; the report then says so at every table
        #[arg(long)]
        simulated: bool,
        /// Only cases whose parameters match; the report then says that it is partial
        #[arg(short = 'p', value_name = "REGEX")]
        params: Option<String>,
        /// The gate alone: neither upstream's cases, nor bench, nor symbols
        #[arg(long)]
        gate_only: bool,
    },
}

#[derive(Debug, Subcommand)]
enum Patches {
    /// Make DIR a git working tree of the pinned ggml with one commit per patch
    Edit {
        /// A folder that is empty or does not exist
        dir: PathBuf,
    },
    /// Write the commits of DIR back to patches/, each hunk with the least context that is unambiguous
    Refresh {
        /// A folder that `edit` made; everything in it must be committed
        dir: PathBuf,
    },
    /// Check that the series applies, comes off again, is proven, and is as a refresh would write it
    Verify,
}

/// Runs the command; errors go to stderr.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    match dispatch(cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(REFUSED)
        }
    }
}

/// Whether nothing is wrong.
fn dispatch(command: Command) -> Result<bool> {
    match command {
        Command::Bindings { check: true } => bindings::check(),
        Command::Bindings { check: false } => bindings::write().map(|()| true),
        Command::Asserts {
            unchecked: true, ..
        } => asserts::print_unchecked().map(|()| true),
        Command::Asserts { check: true, .. } => asserts::check(),
        Command::Asserts { check: false, .. } => asserts::write().map(|()| true),
        Command::Names { check } => write_or_check(&[names::page()?], check),
        Command::Findings { check } => write_or_check(&findings::pages()?, check),
        Command::Patches { command } => run_patches(command),
        Command::Upgrade { version, dry_run } => {
            let outcome = upgrade::upgrade(&checkout(), &version, dry_run)?;
            print_upgrade(&outcome);
            Ok(outcome.applies() && regenerate_bindings(&outcome))
        }
        Command::MacReport {
            out,
            simulated,
            params,
            gate_only,
        } => {
            let report = mac_report::collect(&mac_report::Options {
                simulated,
                backend_ops: None,
                params,
                gate_only,
            })?;
            fs::write(&out, mac_report::render(&report))
                .with_context(|| format!("cannot write {}", out.display()))?;
            println!("wrote {}", out.display());
            Ok(report.is_clean())
        }
    }
}

/// Writes the pages, or compares all of them.
fn write_or_check(pages: &[Page], check: bool) -> Result<bool> {
    let mut holds = true;
    for page in pages {
        if check {
            holds &= page.check()?;
        } else {
            page.write()?;
        }
    }
    Ok(holds)
}

fn run_patches(command: Patches) -> Result<bool> {
    let root = checkout();
    let series = root.join("patches");
    let pin = Pin::resolve(&root.join("vendor"))?;
    match command {
        Patches::Edit { dir } => {
            patches::edit(&pin, &series, &dir)?;
            println!(
                "{} holds {} with the series as commits",
                dir.display(),
                pin.label()
            );
        }
        Patches::Refresh { dir } => {
            let changes = patches::refresh(&pin, &series, &dir)?;
            if changes.is_empty() {
                println!("nothing changed");
            }
            for change in changes {
                println!("{change}");
            }
        }
        Patches::Verify => {
            let report = patches::verify(&pin, &series, &root)?;
            for line in &report.holds {
                println!("ok     {line}");
            }
            for line in &report.wrong {
                println!("WRONG  {line}");
            }
            return Ok(report.wrong.is_empty());
        }
    }
    Ok(true)
}

fn print_upgrade(outcome: &Outcome) {
    println!("{} -> {}", outcome.old.label(), outcome.new.label());
    if outcome.is_same() {
        println!("this is the pinned version: nothing to change");
    }
    for (patch, hunks) in &outcome.failed {
        for hunk in hunks {
            println!(
                "{patch}: hunk {} of {} does not fit: {}\n{}",
                hunk.number, hunk.file, hunk.reason, hunk.text
            );
        }
    }
    if outcome.applies() {
        println!("every hunk of the series fits");
    }
    for reading in &outcome.reading {
        println!("read: {reading}");
    }
    if outcome.written {
        println!(
            "vendor/Cargo.toml and vendor/Cargo.lock pin it now; go on with the checklist in vendor/README.md"
        );
    }
}

/// Bindings follow the headers, so they are generated once the new pin is in place and the series fits.
fn regenerate_bindings(outcome: &Outcome) -> bool {
    if !outcome.written {
        return true;
    }
    match bindings::write() {
        Ok(()) => true,
        Err(error) => {
            println!("the bindings are still the old ones: {error:#}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
