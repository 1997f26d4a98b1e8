//! The `backend-ops` binary: parses the command line, runs a session, turns the verdict into an exit code.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use backend_ops::cli::{self, Cli, Environment, Mode, Output};
use backend_ops::engine::session::{Session, Verdict};
use backend_ops::engine::worker;
use backend_ops::judge::verify;
use backend_ops::modes::threads;
use backend_ops::select::filter::{OpFilter, params_regex};
use backend_ops::select::{self, CaseFilter, coverage, test_file};
use clap::Parser;
use ggml_rs::Device;
use ggml_rs::registry::RegistryOptions;

const FAILED: u8 = 1;
const NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let args = Cli::parse();
    match run(&args) {
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

fn run(args: &Cli) -> anyhow::Result<Verdict> {
    if let Some(device_and_threads) = &args.worker {
        return serve(args, device_and_threads);
    }
    // Arguments first: a typo should not wait for a device.
    cli::check(args)?;
    let cases = CaseFilter {
        set: args.case_set(),
        ops: args
            .ops
            .as_deref()
            .map(OpFilter::parse)
            .transpose()?
            .unwrap_or_default(),
        params: args.params.as_deref().map(params_regex).transpose()?,
        named: args.test_file.as_deref().map(test_file::read).transpose()?,
    }
    .select()?;
    select::staging_applies(args.staging, &cases)?;
    select::route_applies(args.route, args.staging, &cases)?;
    if args.list_ops {
        coverage::list_ops(&mut io::stdout().lock())?;
        return Ok(Verdict::Passed);
    }
    if args.show_coverage {
        coverage::show(&cases, &mut io::stdout().lock())?;
        return Ok(Verdict::Passed);
    }
    if args.mode == Mode::Grad && args.output == Output::Markdown {
        // The CPU's own checks of operands are all that it takes.
        return cli::gradients(args, &cases);
    }
    let environment = Environment::read();
    create_devices(args)?;
    let all_devices = Device::all()?;
    let devices = select::devices(&all_devices, args.device(), &args.require, args.set)?;
    if args.tensor.is_some_and(|tensor| tensor.is_on()) {
        select::require_tensor_api(&devices)?;
    }
    if args.mode == Mode::Threads {
        threads::require(&devices)?;
    }
    if args.verify.is_some() {
        verify::require(&devices).context("--verify")?;
    }
    let session = Session {
        cases,
        devices,
        all_devices,
        settings: cli::settings(args),
        workers: cli::workers(args)?,
        bisect: args.bisect,
    };
    match args.mode {
        Mode::Test | Mode::Grad | Mode::Threads => cli::report(args, &session, &environment),
        Mode::Perf => cli::perf(args, session, &environment),
        Mode::Support => cli::support(args, session, &environment),
        Mode::Barriers => cli::barriers(&session, &cli::progress_bar()),
    }
}

/// Runs cases for another process.
fn serve(args: &Cli, device_and_threads: &[String]) -> anyhow::Result<Verdict> {
    let [device, threads] = device_and_threads else {
        anyhow::bail!("--worker: expected a device and a number of threads");
    };
    let threads = threads.parse().context("--worker: threads")?;
    create_devices(args)?;
    let [device] = select::devices(&Device::all()?, Some(device), &[], args.set)?[..] else {
        anyhow::bail!("--worker: expected one device");
    };
    worker::serve(&args.set.cases(), device, threads, cli::settings(args))?;
    Ok(Verdict::Passed)
}

fn create_devices(args: &Cli) -> anyhow::Result<()> {
    let mut options = RegistryOptions::default();
    options.tensor_api = args.tensor.map(|tensor| tensor.is_on());
    options.backend_lib.clone_from(&args.backend_lib);
    // SAFETY: `install` must not race with other users of the environment, and a library it loads must be a ggml backend of
    // this build. No other thread exists yet, and --backend-lib is a hidden flag for libraries that our own builder made.
    unsafe { options.install() }.context("create the devices")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
