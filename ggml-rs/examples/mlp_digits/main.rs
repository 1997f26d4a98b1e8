//! Trains a small network on real handwritten digits, and says how well it reads digits that it never saw.
//!
//! ```sh
//! cargo run --release -p ggml-rs --example mlp_digits
//! ```
//!
//! The data: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998), CC BY 4.0,
//! 1797 digits of 8x8 pixels, as crate `smartcore` (Apache-2.0) carries them. A fifth of each digit is held out and judges the network
//! once, at the end. What could be chosen (`--help` lists it) was chosen by `--validate`: on a fifth of the other digits.

mod digits;
mod network;
mod plot;
mod track;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use digits::{CLASSES, PIXELS};
use ggml_rs::train::{Arrays, Dataset, EpochReport, Event, Every, Fit, Stop, Task, Trainer};
use ggml_rs::{Device, Params, Scheduler};
use indicatif::{ProgressBar, ProgressStyle};
use network::Settings;

/// Trains a network on 8x8 handwritten digits and judges it by digits that it never saw.
#[derive(Debug, Parser)]
#[command(after_help = HELP)]
struct Cli {
    /// What computes: CPU, or MTL0, which is Apple's GPU or, elsewhere, simulated.
    #[arg(long, value_name = "NAME", default_value = "CPU")]
    device: String,
    /// Threads of the CPU; this network is too small to share.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    settings: Settings,
    /// Judge by a fifth of the training part, and leave the digits held out alone.
    #[arg(long)]
    validate: bool,
    /// Exit with code 1 where fewer digits are right.
    #[arg(long, value_name = "PERCENT")]
    at_least: Option<f64>,
    /// Draw the losses of this run's epochs; with --validate, of validation too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a checkpoint here after each epoch.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Go on from the checkpoint, if there is one.
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Stop after so many epochs, to go on with --resume.
    #[arg(long, value_name = "N", requires = "checkpoint")]
    stop_after: Option<u64>,
    /// Only make so many steps on the CPU and on MTL0, and compare.
    #[arg(long, value_name = "STEPS")]
    track: Option<usize>,
}

const HELP: &str = "\
Examples:
  mlp_digits                                            train, and judge by the digits held out
  mlp_digits --svg loss.svg                             draw the loss curve too
  mlp_digits --checkpoint run.gguf --stop-after 5       the first five epochs
  mlp_digits --checkpoint run.gguf --resume             the others: the same weights as without a stop
  mlp_digits --validate --hidden 64                     try a choice without looking at the digits held out
  mlp_digits --track 5                                  compare steps on the simulated Metal device with the CPU's

Exit codes: 0 done, 1 fewer digits right than --at-least, 2 usage, files or devices";

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether enough digits are right.
fn run(cli: &Cli) -> Result<bool> {
    let data = digits::load(cli.validate)?;
    let judged_by = match cli.validate {
        true => "of the others for validation",
        false => "held out",
    };
    println!(
        "digits     {} to train, {} {judged_by}",
        data.train.len(),
        data.judge.len()
    );
    let moved = digits::moved(&data.train)?;
    if let Some(steps) = cli.track {
        return compare(&cli.settings, &moved, steps);
    }
    let device = Device::by_name(&cli.device)?;
    let mut executor = track::executor(device, cli.threads)?;
    let Settings { hidden, seed, .. } = cli.settings;
    println!("device     {} ({})", device.name(), device.description());
    println!("network    {PIXELS} - {hidden} - {CLASSES}, seed {seed}");

    let weights = cli.settings.weights(device)?;
    let mut trainer = cli.settings.trainer(&executor, &moved, &weights)?;
    if let (Some(path), true) = (&cli.checkpoint, cli.resume)
        && path.exists()
    {
        trainer.restore(path)?;
        println!("resumed    after {} epochs", trainer.progress().epoch);
    }
    let validation = cli.validate.then_some(&data.judge);
    let stop = fit(cli, &mut trainer, &mut executor, validation)?;
    println!("weights    {:016x}", fingerprint(&weights)?);
    if stop == Stop::Callback {
        println!("stopped    after {} epochs", trainer.progress().epoch);
        return Ok(true);
    }
    let found = trainer.evaluate(&mut executor, &data.judge, Task::Classify)?;
    let Some(accuracy) = found.accuracy else {
        bail!("an accuracy was asked for");
    };
    println!("loss       {} ({judged_by})", found.loss);
    let (low, high) = accuracy.wilson_95();
    let [percent, low, high] = [accuracy.value(), low, high].map(|part| 100.0 * part);
    let (right, all) = (accuracy.hits, accuracy.samples);
    // The last percentage is the result: whoever reads it with a machine takes that.
    println!(
        "right      {right} of {all} ({judged_by}); 95% interval {low:.2} to {high:.2}; accuracy {percent:.2}%"
    );
    Ok(cli.at_least.is_none_or(|least| percent >= least))
}

fn fit<D: Dataset>(
    cli: &Cli,
    trainer: &mut Trainer<D>,
    executor: &mut Scheduler,
    validation: Option<&Arrays>,
) -> Result<Stop> {
    // Draws nothing where the output is no terminal.
    let bar = ProgressBar::new(cli.settings.epochs);
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} epoch {pos}/{len} {msg}",
    )?);
    bar.set_position(trainer.progress().epoch);
    let mut epochs = Vec::new();
    let mut plan = Fit::epochs(cli.settings.epochs).on_event(|event| {
        let Event::Epoch(report) = event else {
            return ControlFlow::Continue(());
        };
        epochs.push(report);
        bar.set_position(report.epoch + 1);
        bar.set_message(format!("loss {:.4}", report.loss));
        match cli.stop_after {
            Some(epochs) if report.epoch + 1 >= epochs => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    if let Some(data) = validation {
        plan = plan.validate(data, Task::Classify);
    }
    if let Some(path) = &cli.checkpoint {
        plan = plan.checkpoint(path, Every::Epochs(1));
    }
    let finish = trainer.fit(executor, plan)?;
    bar.finish_and_clear();
    for EpochReport { epoch, loss, .. } in epochs.iter().filter(|report| report.epoch % 5 == 4) {
        println!("epoch {:4} loss {loss:.6}", epoch + 1);
    }
    match &cli.svg {
        Some(_) if epochs.is_empty() => println!("curve      none: every epoch was made before"),
        Some(path) => {
            plot::draw(path, &epochs)?;
            println!("curve      {}", path.display());
        }
        None => {}
    }
    Ok(finish.stop)
}

/// Every bit of the weights, in 64: two runs that print the same have the same.
fn fingerprint(weights: &Params) -> Result<u64> {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for weight in weights.iter() {
        for byte in weight.read_bytes()? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}

fn compare(settings: &Settings, data: &impl Dataset, steps: usize) -> Result<bool> {
    let device = Device::by_name("MTL0")?;
    println!("device     {} ({})", device.name(), device.description());
    let tracked = track::track(settings, data, device, steps)?;
    for (step, found) in tracked.iter().enumerate() {
        println!(
            "step {:4} loss {:.6}, differs by {:.1e}; weights differ by {:.1e}",
            step + 1,
            found.loss,
            found.loss_difference,
            found.weights_difference
        );
    }
    let largest = |of: fn(&track::Tracked) -> f64| tracked.iter().map(of).fold(0.0, f64::max);
    println!(
        "largest relative difference: loss {:.1e}, weights {:.1e}",
        largest(|found| found.loss_difference),
        largest(|found| found.weights_difference)
    );
    Ok(true)
}
