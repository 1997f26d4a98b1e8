//! Gradients against central differences, element by element.
//!
//! A check compares with the differences twice. The *formulas* are the backward's own nodes, evaluated in double precision by
//! the [`Interpreter`]: a wrong one shows however small it is. The *device* computes the same nodes in its own precision.
//!
//! ```
//! use ggml_rs::check::{Data, GradientOptions, gradients};
//!
//! let report = gradients(&GradientOptions::default(), |inputs| {
//!     let w = inputs.trained([8, 4], Data::unit())?;
//!     let x = inputs.trained([8, 3], Data::unit())?;
//!     w.mul_mat(x)
//! })?;
//! assert!(report.passes(), "{report}");
//! assert_eq!(report.elements, 8 * 4 + 8 * 3);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod data;
mod difference;
mod inputs;
mod ops;
mod report;

use std::collections::BTreeSet;

pub use data::Data;
pub use inputs::Inputs;
pub use ops::differentiable_ops;
pub use report::{Deviation, GradientReport};

use crate::backend::Scheduler;
use crate::check::Interpreter;
use crate::device::{Device, DeviceKind};
use crate::dtype::DType;
use crate::error::{Error, OpError, Result};
use crate::graph::{BackwardOptions, Graph, Output, Tensor, most_tensors, node};
use crate::plan::{Placement, Plan, PlanOptions};
use inputs::Given;
use report::{larger, worst};

/// How [`gradients`] checks.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GradientOptions {
    /// The seed of all data.
    pub seed: u64,
    /// The largest error of what the device computes, relative to the larger of an element and the root mean square of its
    /// gradient. The default, 3e-5, is 250 units of f32: chains of some ten operations, and sums of some hundred terms that
    /// cancel in part.
    pub tolerance: f64,
    /// The same for the formulas in double precision. The default, 1e-6, is for constants in f32.
    pub formula_tolerance: f64,
    /// The device; `None` is the CPU. The CPU computes what another device does not run, and the report names those ops.
    pub device: Option<Device>,
    /// How the backward is made.
    pub backward: BackwardOptions,
}

impl Default for GradientOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            tolerance: 3e-5,
            formula_tolerance: 1e-6,
            device: None,
            backward: BackwardOptions::default(),
        }
    }
}

impl GradientOptions {
    /// The same with another seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The same with another tolerance of what the device computes.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The same on another device.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The same with another backward.
    #[must_use]
    pub fn backward(mut self, backward: BackwardOptions) -> Self {
        self.backward = backward;
        self
    }
}

/// Where operands lie: in one buffer, and in buffers of their own.
const PLACEMENTS: [Placement; 2] = [
    Placement::Pooled,
    Placement::Separate { sentinel_bytes: 64 },
];

/// Checks the gradients of every trained input of the graph that `build` makes.
///
/// `build` declares the inputs and returns a tensor of any shape; the loss is its sum after a multiplication with fixed random
/// weights, so that its gradient is not constant. It is called several times, for graphs without a backward and with one, and
/// must make the same every time.
///
/// # Errors
/// What `build`, the backward or a plan returns; [`Error::Param`] without a trained input, and where the loss is not smooth
/// ([`Data::Smooth`] keeps values away from kinks).
#[track_caller]
pub fn gradients(
    options: &GradientOptions,
    build: impl for<'g> Fn(&mut Inputs<'g>) -> Result<Tensor<'g>>,
) -> Result<GradientReport> {
    let (expected, forward) = differences(options.seed, &build)?;
    let formulas = Backward::build(options, &build)?.evaluate()?;
    let (mut device, mut on_cpu) = (None, BTreeSet::new());
    for placement in PLACEMENTS {
        let (got, elsewhere) =
            Backward::build(options, &build)?.compute(options.device, placement)?;
        on_cpu.extend(elsewhere);
        let found = compare(&expected, &got, options.tolerance)?;
        device = Some(device.map_or(found.clone(), |worst| larger(worst, found)));
    }
    Ok(GradientReport {
        seed: options.seed,
        elements: expected.iter().map(|input| input.values.len()).sum(),
        ops: forward.ops,
        tensors_per_node: forward.tensors_per_node,
        on_cpu,
        formula: compare(&expected, &formulas, options.formula_tolerance)?,
        device: device.ok_or_else(no_input)?,
    })
}

/// The gradient of one input.
struct Expected {
    name: String,
    values: Vec<f64>,
}

/// What is known of the graph without a backward.
struct Forward {
    ops: BTreeSet<String>,
    tensors_per_node: usize,
}

/// Central differences of the graph without a backward, and what it is made of.
#[track_caller]
fn differences(
    seed: u64,
    build: &impl for<'g> Fn(&mut Inputs<'g>) -> Result<Tensor<'g>>,
) -> Result<(Vec<Expected>, Forward)> {
    let (graph, (given, trained, loss, tensors_per_node)) = Graph::build(|g| {
        let mut inputs = Inputs::new(g, seed);
        let loss = loss(&mut inputs, build)?;
        // Without an input there is nothing to measure; the caller says so.
        let tensors_per_node = match inputs.trained.is_empty() {
            true => 0,
            false => most_tensors(loss)?,
        };
        let loss = g.output("loss", loss)?;
        let trained = inputs.trained.into_iter();
        let trained: Vec<_> = trained
            .map(|trained| (trained.name, trained.index))
            .collect();
        Ok((inputs.given, trained, loss, tensors_per_node))
    })?;
    let mut reference = Interpreter::new(&graph)?;
    for given in &given {
        given.set_reference(&mut reference)?;
    }
    let mut expected = Vec::new();
    for (name, index) in trained {
        let (input, at) = (&given[index].input, given[index].floats());
        let values = difference::derivatives(&name, &at, |values| {
            reference.set(input, values)?;
            reference.run()?;
            Ok(reference.read(&loss)?[0])
        })?;
        // What the next input's differences start from.
        reference.set(input, &at)?;
        expected.push(Expected { name, values });
    }
    // SAFETY: the graph keeps its tensors alive.
    let ops = graph
        .tensors()
        .iter()
        .map(|&tensor| unsafe { node::op_name(tensor) });
    let forward = Forward {
        ops: ops.collect(),
        tensors_per_node,
    };
    Ok((expected, forward))
}

/// The sum of what `build` returns, weighted.
#[track_caller]
fn loss<'g>(
    inputs: &mut Inputs<'g>,
    build: &impl Fn(&mut Inputs<'g>) -> Result<Tensor<'g>>,
) -> Result<Tensor<'g>> {
    let out = build(inputs)?;
    let weights = inputs.fixed(DType::F32, out.shape(), Data::Within(0.5, 1.5))?;
    let out = if out.is_contiguous() {
        out
    } else {
        out.cont()?
    };
    out.mul(weights)?.sum()
}

/// A graph with its backward.
struct Backward {
    graph: Graph,
    given: Vec<Given>,
    /// The gradients, in the order of the trained inputs.
    outputs: Vec<Output>,
}

impl Backward {
    #[track_caller]
    fn build(
        options: &GradientOptions,
        build: &impl for<'g> Fn(&mut Inputs<'g>) -> Result<Tensor<'g>>,
    ) -> Result<Self> {
        let (graph, (given, outputs)) = Graph::build(|g| {
            let mut inputs = Inputs::new(g, options.seed);
            let loss = loss(&mut inputs, build)?;
            let gradients = g.backward_with(loss, options.backward)?;
            let mut outputs = Vec::new();
            for trained in &inputs.trained {
                let gradient = gradients.of(trained.tensor)?;
                let contiguous = gradient.is_contiguous();
                let gradient = if contiguous {
                    gradient
                } else {
                    gradient.cont()?
                };
                outputs.push(g.output(&format!("gradient of {}", trained.name), gradient)?);
            }
            Ok((inputs.given, outputs))
        })?;
        Ok(Self {
            graph,
            given,
            outputs,
        })
    }

    /// The gradients in double precision.
    fn evaluate(&self) -> Result<Vec<Vec<f64>>> {
        let mut reference = Interpreter::new(&self.graph)?;
        for given in &self.given {
            given.set_reference(&mut reference)?;
        }
        reference.run()?;
        let outputs = self.outputs.iter();
        outputs.map(|output| reference.read(output)).collect()
    }

    /// The gradients as a device computes them, and the ops that the CPU computed instead.
    fn compute(
        self,
        device: Option<Device>,
        placement: Placement,
    ) -> Result<(Vec<Vec<f64>>, BTreeSet<String>)> {
        let cpu = Device::cpu()?;
        let first = device.unwrap_or(cpu);
        let mut scheduler = scheduler(first)?;
        let mut plan = Plan::new(self.graph, &scheduler, PlanOptions { placement })?;
        let on_cpu = plan
            .assigned()
            .filter(|node| node.device != first)
            .map(|node| node.op)
            .collect();
        for given in &self.given {
            given.set_plan(&mut plan)?;
        }
        plan.run(&mut scheduler)?;
        if matches!(placement, Placement::Separate { .. }) {
            plan.check_sentinels()?;
        }
        let wide = |output: &Output| {
            let values = plan.read_f32(output)?;
            Ok(values.into_iter().map(f64::from).collect())
        };
        let gradients: Result<_> = self.outputs.iter().map(wide).collect();
        Ok((gradients?, on_cpu))
    }
}

/// A device, and the CPU after it where that is another one.
fn scheduler(first: Device) -> Result<Scheduler> {
    let mut cpu = Device::cpu()?.open()?;
    // Waiting for each other would take several threads longer than these graphs take one.
    cpu.set_threads(1)?;
    match first.kind() {
        DeviceKind::Cpu => Scheduler::new([cpu]),
        _ => Scheduler::new([first.open()?, cpu]),
    }
}

/// The worst element over all inputs.
#[track_caller]
fn compare(expected: &[Expected], got: &[Vec<f64>], tolerance: f64) -> Result<Deviation> {
    let inputs = expected.iter().zip(got);
    let found = inputs.map(|(input, got)| worst(&input.name, &input.values, got, tolerance));
    found.reduce(larger).ok_or_else(no_input)
}

#[track_caller]
fn no_input() -> Error {
    let detail = "no trained input was declared: there is no gradient to check";
    Error::Param(OpError::new("gradients", detail, Vec::new()))
}
