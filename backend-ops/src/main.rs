//! The `backend-ops` binary: parses the command line, runs a session, turns the verdict into an exit code.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use backend_ops::case::Choices;
use backend_ops::cli::{Cli, Environment, Mode, Output};
use backend_ops::coverage;
use backend_ops::filter::{OpFilter, params_regex};
use backend_ops::modes;
use backend_ops::pool::Recipe;
use backend_ops::report::{ConsoleReport, Look, RowFormat, RowReport};
use backend_ops::runner::Settings;
use backend_ops::select::{self, CaseFilter};
use backend_ops::session::{Session, Verdict, Workers};
use backend_ops::{test_file, threads, verify, worker};
use clap::Parser;
use ggml_rs::Device;
use ggml_rs::registry::RegistryOptions;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const FAILED: u8 = 1;
const NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(FAILED),
        Ok(Verdict::NothingRan) => {
            eprintln!(
                "error: nothing ran on a tested device, so nothing is proven; see the reasons above"
            );
            ExitCode::from(NOT_RUN)
        }
        Err(error) => {
            // Whoever reads us (`| head`) has seen enough: that needs no comment, but it is no pass either.
            if !is_broken_pipe(&error) {
                eprintln!("error: {error:#}");
            }
            ExitCode::from(NOT_RUN)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<Verdict> {
    if let Some(device_and_threads) = &cli.worker {
        return serve(cli, device_and_threads);
    }
    // Arguments first: a typo should not wait for a device.
    modes::check(cli)?;
    let cases = CaseFilter {
        set: cli.case_set(),
        ops: cli
            .ops
            .as_deref()
            .map(OpFilter::parse)
            .transpose()?
            .unwrap_or_default(),
        params: cli.params.as_deref().map(params_regex).transpose()?,
        named: cli.test_file.as_deref().map(test_file::read).transpose()?,
    }
    .select()?;
    select::staging_applies(cli.staging, &cases)?;
    select::route_applies(cli.route, cli.staging, &cases)?;
    if cli.list_ops {
        coverage::list_ops(&mut io::stdout().lock())?;
        return Ok(Verdict::Passed);
    }
    if cli.show_coverage {
        coverage::show(&cases, &mut io::stdout().lock())?;
        return Ok(Verdict::Passed);
    }
    if cli.mode == Mode::Grad && cli.output == Output::Markdown {
        // The CPU's own checks of operands are all that it takes.
        return modes::gradients(cli, &cases);
    }
    let environment = Environment::read();
    create_devices(cli)?;
    let all_devices = Device::all()?;
    let devices = select::devices(&all_devices, cli.device(), &cli.require, cli.set)?;
    if cli.tensor.is_some_and(|tensor| tensor.is_on()) {
        select::require_tensor_api(&devices)?;
    }
    if cli.mode == Mode::Threads {
        threads::require(&devices)?;
    }
    if cli.verify.is_some() {
        verify::require(&devices).context("--verify")?;
    }
    let session = Session {
        cases,
        devices,
        all_devices,
        settings: settings(cli),
        workers: workers(cli)?,
        bisect: cli.bisect,
    };
    match cli.mode {
        Mode::Test | Mode::Grad | Mode::Threads => report(cli, &session, &environment),
        Mode::Perf => modes::perf(cli, session, &environment),
        Mode::Support => modes::support(cli, session, &environment),
        Mode::Barriers => modes::barriers(&session, &progress_bar()),
    }
}

fn settings(cli: &Cli) -> Settings {
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
fn workers(cli: &Cli) -> anyhow::Result<Option<Workers>> {
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

/// Runs cases for another process.
fn serve(cli: &Cli, device_and_threads: &[String]) -> anyhow::Result<Verdict> {
    let [device, threads] = device_and_threads else {
        anyhow::bail!("--worker: expected a device and a number of threads");
    };
    let threads = threads.parse().context("--worker: threads")?;
    create_devices(cli)?;
    let [device] = select::devices(&Device::all()?, Some(device), &[], cli.set)?[..] else {
        anyhow::bail!("--worker: expected one device");
    };
    worker::serve(&cli.set.cases(), device, threads, settings(cli))?;
    Ok(Verdict::Passed)
}

fn create_devices(cli: &Cli) -> anyhow::Result<()> {
    let mut options = RegistryOptions::default();
    options.tensor_api = cli.tensor.map(|tensor| tensor.is_on());
    options.backend_lib.clone_from(&cli.backend_lib);
    // SAFETY: `install` must not race with other users of the environment, and a library it loads must be a ggml backend of
    // this build. No other thread exists yet, and --backend-lib is a hidden flag for libraries that our own builder made.
    unsafe { options.install() }.context("create the devices")
}

/// Runs the session with the reports that the command line asks for.
fn report(cli: &Cli, session: &Session, environment: &Environment) -> anyhow::Result<Verdict> {
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
fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    // The name has a line of its own: it must not be cut short, because after a crash it is what names the culprit.
    let style = ProgressStyle::with_template("{msg}\n{bar:30} {pos}/{len} {elapsed}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
