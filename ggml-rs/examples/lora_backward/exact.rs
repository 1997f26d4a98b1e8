//! The gradients in double precision, and whether they are gradients.

use ggml_rs::check::Interpreter;
use ggml_rs::{Graph, Result, Staging};

use crate::block::{self, Block, Stagings};

/// Gradients of all adapters.
pub struct Exact {
    pub values: Vec<f64>,
    /// The largest relative difference from central differences of the loss, over [`SAMPLES`] elements of each adapter.
    pub deviation: f64,
}

const SAMPLES: usize = 3;
/// Truncation and rounding of central differences both stay below 1e-8 of the gradient here.
const STEP: f64 = 1e-5;

/// Interprets the same graph in f64. Stagings do not matter there.
pub fn gradients(seed: u64) -> Result<Exact> {
    let (graph, block) = block::build(
        seed,
        Stagings {
            forward: Staging::Float,
            backward: Staging::Float,
        },
    )?;
    let mut exact = interpreter(&graph, &block)?;
    exact.run()?;
    let by_adapter = block
        .gradients
        .iter()
        .map(|output| exact.read(output))
        .collect::<Result<Vec<_>>>()?;

    let mut deviation: f64 = 0.0;
    for (gradient, &adapter) in by_adapter.iter().zip(&block.adapters) {
        let scale = gradient
            .iter()
            .fold(0.0, |largest: f64, value| largest.max(value.abs()));
        for sample in 0..SAMPLES {
            let element = (sample * 7919 + 13) % gradient.len();
            let difference = central_difference(&mut exact, &block, adapter, element)?;
            deviation = deviation.max((difference - gradient[element]).abs() / scale);
        }
    }
    Ok(Exact {
        values: by_adapter.concat(),
        deviation,
    })
}

fn interpreter<'a>(graph: &'a Graph, block: &Block) -> Result<Interpreter<'a>> {
    let mut exact = Interpreter::new(graph)?;
    for (input, values) in &block.inputs {
        exact.set_f32(input, values)?;
    }
    exact.set_i32(&block.positions.0, &block.positions.1)?;
    Ok(exact)
}

/// How the loss changes with one element of an adapter.
fn central_difference(
    exact: &mut Interpreter<'_>,
    block: &Block,
    adapter: usize,
    element: usize,
) -> Result<f64> {
    let (input, values) = &block.inputs[adapter];
    let mut values: Vec<f64> = values.iter().copied().map(f64::from).collect();
    let middle = values[element];
    let mut loss = |at: f64| -> Result<f64> {
        values[element] = at;
        exact.set(input, &values)?;
        exact.run()?;
        Ok(exact.read(&block.loss)?[0])
    };
    let difference = (loss(middle + STEP)? - loss(middle - STEP)?) / (2.0 * STEP);
    loss(middle)?;
    Ok(difference)
}
