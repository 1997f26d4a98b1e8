//! Why gradients must not pass through half: a LoRA fine-tuning step of one transformer block, frozen q4_K weights, with a
//! loss scale under which gradients exceed 65504, the largest half.
//!
//! ```sh
//! cargo run --release -p ggml-rs --example lora_backward
//! ```
//!
//! On a Mac it runs on the GPU, elsewhere on the simulated Metal device, and says so. It prints, for each staging, how many
//! gradients are not finite, and how far the others are from gradients in f64. Exit code 1 where float staging is not
//! right, or half staging as wrong as this says.

mod block;
mod exact;

use std::process::ExitCode;

use block::{Block, Stagings};
use ggml_rs::{Device, Plan, PlanOptions, Result, Staging};

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

/// Whether float staging is right, and half staging as wrong as this example says.
fn run() -> Result<bool> {
    let device = metal()?;
    let tensor_api = device.tensor_api() == Some(true);
    println!("device     {} ({})", device.name(), device.description());
    println!("tensor API {}", if tensor_api { "on" } else { "off" });
    println!("seed       {SEED}");
    let exact = exact::gradients(SEED)?;
    println!(
        "reference  f64; differs from central differences by {:.1e} at most\n",
        exact.deviation
    );

    print_header();
    let row = |name, forward, backward| -> Result<Row> {
        let row = measure(device, Stagings { forward, backward }, &exact.values)?;
        row.print(name);
        Ok(row)
    };
    let float = row("float", Staging::Float, Staging::Float)?;
    let half = row("half", Staging::Half, Staging::Half)?;
    row("half, backward float", Staging::Half, Staging::Float)?;

    let right = float.not_finite == 0 && float.rms_error <= TOLERANCE;
    // The tensor kernel reads gradients in place, under either staging: nothing overflows there.
    let overflows = tensor_api || half.not_finite == half.gradients;
    println!("\nthe largest half is 65504");
    println!("float stays within {TOLERANCE:.0e} of f64: {}", yes(right));
    if !tensor_api {
        println!("half leaves no gradient finite: {}", yes(overflows));
    }
    Ok(right && overflows)
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}

fn print_header() {
    println!(
        "{:22} {:>10} {:>12} {:>16} {:>12}",
        "staging", "gradients", "not finite", "largest at end", "rms error"
    );
}

impl Row {
    fn print(&self, name: &str) {
        let error = if self.rms_error.is_nan() {
            "-".to_owned()
        } else {
            format!("{:.1e}", self.rms_error)
        };
        println!(
            "{name:22} {:>10} {:>12} {:>16.3e} {error:>12}",
            self.gradients, self.not_finite, self.largest
        );
    }
}

/// The Metal device: Apple's, or the simulated one.
fn metal() -> Result<Device> {
    Device::by_name("MTL0")
}

fn measure(device: Device, stagings: Stagings, exact: &[f64]) -> Result<Row> {
    let (graph, block) = block::build(SEED, stagings)?;
    // No fallback: every node runs on the Metal device, or there is no plan.
    let mut backend = device.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    set(&mut plan, &block)?;
    plan.run(&mut backend)?;

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
