//! Why gradients must not pass through half: a LoRA fine-tuning step of one transformer block, frozen q4_K weights, with a
//! loss scale under which gradients exceed 65504, the largest half.
//!
//! ```sh
//! cargo run --release -p ggml-rs --example lora_backward
//! ```
//!
//! On a Mac it runs on the GPU, elsewhere on the simulated Metal device, and says so. It prints, for each staging, how many
//! gradients are not finite, and how far the others are from gradients in f64. Exit code 1 where float staging is not
//! right.

mod block;
mod exact;

use std::process::ExitCode;

use block::{Block, Stagings};
use ggml_rs::{Device, Plan, PlanOptions, Result, Scheduler, Staging};

const SEED: u64 = 1;
/// A gradient is a sum over tokens of products of f32 values, each the end of a chain of some thirty ops with an error of
/// 6e-8 each: what is left of it in the root mean square.
const TOLERANCE: f64 = 1e-5;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// One row of the table.
struct Row {
    gradients: usize,
    not_finite: usize,
    /// The largest gradient at the end of the block.
    largest: f32,
    /// Relative to the root mean square of the exact gradients; NaN where a gradient is not finite.
    rms_error: f64,
}

/// Whether float staging is as right as it should be.
fn run() -> Result<bool> {
    let device = metal()?;
    println!("device     {} ({})", device.name(), device.description());
    println!("seed       {SEED}");
    let exact = exact::gradients(SEED)?;
    println!(
        "reference  f64; differs from central differences by {:.1e} at most\n",
        exact.deviation
    );

    println!(
        "{:22} {:>10} {:>12} {:>16} {:>12}",
        "staging", "gradients", "not finite", "largest at end", "rms error"
    );
    let mut right = false;
    for (name, forward, backward) in [
        ("float", Staging::Float, Staging::Float),
        ("half", Staging::Half, Staging::Half),
        ("half, backward float", Staging::Half, Staging::Float),
    ] {
        let row = measure(device, Stagings { forward, backward }, &exact.values)?;
        let error = if row.rms_error.is_nan() {
            "-".to_owned()
        } else {
            format!("{:.1e}", row.rms_error)
        };
        println!(
            "{name:22} {:>10} {:>12} {:>16.3e} {error:>12}",
            row.gradients, row.not_finite, row.largest
        );
        if name == "float" {
            right = row.not_finite == 0 && row.rms_error <= TOLERANCE;
        }
    }
    println!(
        "\nthe largest half is 65504; float must stay within {TOLERANCE:.0e}: {}",
        if right { "it does" } else { "IT DOES NOT" }
    );
    Ok(right)
}

/// The Metal device: Apple's, or the simulated one.
fn metal() -> Result<Device> {
    Device::by_name("MTL0")
}

fn measure(device: Device, stagings: Stagings, exact: &[f64]) -> Result<Row> {
    let (graph, block) = block::build(SEED, stagings)?;
    // What Metal has no kernel for runs on the CPU.
    let mut scheduler = Scheduler::new([device.open()?, Device::cpu()?.open()?])?;
    let mut plan = Plan::new(graph, &scheduler, PlanOptions::default())?;
    set(&mut plan, &block)?;
    plan.run(&mut scheduler)?;

    let mut gradients = Vec::new();
    for output in &block.gradients {
        gradients.extend(plan.read_f32(output)?);
    }
    let largest = plan
        .read_f32(&block.at_the_end)?
        .into_iter()
        .fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let squares =
        |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = squares(
        &mut gradients
            .iter()
            .zip(exact)
            .map(|(&got, exact)| f64::from(got) - exact),
    );
    Ok(Row {
        gradients: gradients.len(),
        not_finite: gradients.iter().filter(|value| !value.is_finite()).count(),
        largest,
        rms_error: (difference / squares(&mut exact.iter().copied())).sqrt(),
    })
}

fn set(plan: &mut Plan, block: &Block) -> Result<()> {
    for (input, values) in &block.inputs {
        plan.set_f32(input, values)?;
    }
    plan.set_i32(&block.positions.0, &block.positions.1)
}
