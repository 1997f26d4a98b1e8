//! One variant of a reduction, on fresh data many times over.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{Backend, DType, Device, Graph, Plan, PlanOptions, RegistryOptions, Tensor};
use serde_json::json;

use crate::data::Case;
use crate::{bound, faulty};

/// Fewer have let a fault through elsewhere: one that shows in one call of six, and only in some processes.
pub const ITERATIONS: u64 = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Op {
    Sum,
    Mean,
    Max,
    Min,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Axis {
    Rows,
    Whole,
}

/// What one process runs.
#[derive(Debug, Clone, Parser)]
pub struct Variant {
    pub op: Op,
    pub axis: Axis,
    pub dtype: DType,
    pub device: String,
    /// Reduce in half precision on purpose.
    #[arg(long)]
    pub faulty: bool,
    /// A mutant of the simulated device.
    #[arg(long)]
    pub backend_lib: Option<PathBuf>,
}

impl Variant {
    /// The command line that [`Parser`] turns into this variant.
    pub fn args(&self) -> Vec<String> {
        let value = |name: Option<clap::builder::PossibleValue>| {
            name.map(|name| name.get_name().to_owned())
                .unwrap_or_default()
        };
        let mut args = vec![
            value(self.op.to_possible_value()),
            value(self.axis.to_possible_value()),
            self.dtype.to_string(),
            self.device.clone(),
        ];
        if self.faulty {
            args.push("--faulty".into());
        }
        if let Some(library) = &self.backend_lib {
            args.push(format!("--backend-lib={}", library.display()));
        }
        args
    }

    /// Runs it in this process and prints what came of it, as JSON on one line.
    ///
    /// # Errors
    /// What keeps it from running. A wrong result is none: it is counted.
    pub fn run(&self) -> Result<()> {
        if let Some(library) = &self.backend_lib {
            let mut options = RegistryOptions::default();
            options.backend_lib = Some(library.clone());
            // SAFETY: no device exists and no other thread; the library is one of our own builder's.
            unsafe { options.install()? };
        }
        let mut backend = Device::by_name(&self.device)?.open()?;
        if self.device == "CPU" {
            // Threads that wait for each other at every node take 20 times as long on a busy machine.
            backend.set_threads(1)?;
        }
        let mut tally = Tally::default();
        for seed in 0..ITERATIONS {
            let case = Case::new(seed, self.op, self.dtype);
            self.iterate(seed, &case, &mut backend, &mut tally)?;
        }
        println!(
            "{}",
            json!({
                "iterations": tally.iterations,
                "differ": tally.differ,
                "first": tally.first,
                "closest": tally.closest,
                "ulps": tally.ulps,
            })
        );
        Ok(())
    }

    fn iterate(
        &self,
        seed: u64,
        case: &Case,
        backend: &mut Backend,
        tally: &mut Tally,
    ) -> Result<()> {
        let bytes = quantize(self.dtype, &case.values, case.row)?;
        // What the device sees.
        let values = dequantize(self.dtype, &bytes)?;
        let got = self.compute(case, &bytes, backend)?;
        let parts = match self.axis {
            Axis::Rows => case.row,
            Axis::Whole => values.len(),
        };
        let parts: Vec<_> = values.chunks(parts).collect();
        if got.len() != parts.len() {
            bail!("{} results, not {}", got.len(), parts.len());
        }
        tally.iterations += 1;
        let mut right = true;
        for (part, got) in parts.into_iter().zip(got) {
            let exact = exact(self.op, part);
            let distance = (f64::from(got) - exact).abs();
            let allowed = bound::allowed(self, case, part, exact);
            // Of no distance at all, any bound is kept; NaN keeps none.
            right &= distance <= allowed;
            tally.ulps = tally.ulps.max(distance / bound::ulp(self.dtype, exact));
            if distance > 0.0 {
                tally.closest = tally.closest.max(distance / allowed);
            }
            if distance.is_nan() || distance > allowed {
                let (row, rows) = (case.row, case.rows);
                tally.first.get_or_insert_with(|| {
                    format!("seed {seed}, [{row}, {rows}]: {got}, not {exact} within {allowed:.3e}")
                });
            }
        }
        tally.differ += u64::from(!right);
        Ok(())
    }

    fn compute(&self, case: &Case, bytes: &[u8], backend: &mut Backend) -> Result<Vec<f32>> {
        let (graph, (x, y)) = Graph::build(|g| {
            let (x, token) = g.input("x", self.dtype, [case.row, case.rows])?;
            let y = if self.faulty {
                faulty::reduce(x, self.op, self.axis)?
            } else {
                reduce(x, self.op, self.axis)?
            };
            Ok((token, g.output("y", y)?))
        })?;
        let mut plan = Plan::new(graph, backend, PlanOptions::default())?;
        plan.set_bytes(&x, bytes)?;
        plan.run(backend)?;
        plan.read_f32(&y).context("read the result")
    }
}

/// The ops under test.
pub fn reduce(x: Tensor<'_>, op: Op, axis: Axis) -> ggml_rs::Result<Tensor<'_>> {
    match (op, axis) {
        (Op::Sum, Axis::Rows) => x.sum_rows(),
        (Op::Sum, Axis::Whole) => x.sum(),
        (Op::Mean, Axis::Rows) => x.mean_rows(),
        (Op::Mean, Axis::Whole) => x.mean(),
        (Op::Max, Axis::Rows) => x.max_rows(),
        (Op::Max, Axis::Whole) => x.max(),
        (Op::Min, Axis::Rows) => x.min_rows(),
        (Op::Min, Axis::Whole) => x.min(),
    }
}

/// The reference: in f64, where these sums are exact to 1e-12.
fn exact(op: Op, part: &[f32]) -> f64 {
    let values = part.iter().map(|&x| f64::from(x));
    match op {
        Op::Sum => values.sum(),
        Op::Mean => values.sum::<f64>() / part.len() as f64,
        Op::Max => values.fold(f64::NEG_INFINITY, f64::max),
        Op::Min => values.fold(f64::INFINITY, f64::min),
    }
}

/// What the iterations gave.
#[derive(Default)]
struct Tally {
    iterations: u64,
    /// How many had a result beyond its bound.
    differ: u64,
    first: Option<String>,
    /// The largest distance from the reference, in bounds.
    closest: f64,
    /// The same, in units in the last place of the type.
    ulps: f64,
}
