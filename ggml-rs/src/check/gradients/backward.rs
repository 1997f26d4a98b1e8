//! The graph with its backward: what it makes of the gradients.

use std::collections::BTreeSet;

use super::GradientOptions;
use super::forward::terms;
use super::subject::{Given, Subject, Trained};
use crate::backend::Scheduler;
use crate::check::Interpreter;
use crate::device::{Device, DeviceKind};
use crate::error::{Call, Error, Moved, Result};
use crate::graph::{Builder, Gradients, Graph, Output};
use crate::plan::{Placement, Plan, PlanOptions};

/// The gradients of the trained inputs, one after the other.
pub type Values = Vec<Vec<f64>>;

/// A graph with its backward.
pub struct Backward {
    graph: Graph,
    given: Vec<Given>,
    outputs: Vec<Made>,
}

/// What a backward made for a trained input.
enum Made {
    Gradient(Output),
    /// Nothing, for an input of so many elements: the loss does not depend on it, or only through ops that are constant
    /// wherever they are defined.
    Nothing(usize),
}

impl Backward {
    #[track_caller]
    pub fn build(
        call: Call,
        options: &GradientOptions,
        build: &impl for<'g> Fn(Builder<'g>) -> Result<Subject<'g>>,
    ) -> Result<Self> {
        let (graph, (given, outputs)) = Graph::build(|g| {
            let Subject {
                result,
                mut given,
                trained,
            } = build(g)?;
            let (terms, weights) = terms(call, g, result, options.seed)?;
            given.push(weights);
            let loss = terms.sum().moved_to(call.at)?;
            let gradients = g.backward_with(loss, options.backward).moved_to(call.at)?;
            let made = trained.iter().map(|trained| made(g, &gradients, trained));
            Ok((given, made.collect::<Result<Vec<_>>>().moved_to(call.at)?))
        })?;
        Ok(Self {
            graph,
            given,
            outputs,
        })
    }

    /// The gradients in double precision.
    pub fn evaluate(&self, call: Call) -> Result<Values> {
        let mut reference = Interpreter::new(&self.graph).moved_to(call.at)?;
        for given in &self.given {
            given.set_reference(call, &mut reference)?;
        }
        reference.run().moved_to(call.at)?;
        self.read(|output| reference.read(output)).moved_to(call.at)
    }

    /// The gradients as a device computes them, and the ops that the CPU computed instead.
    pub fn compute(
        self,
        call: Call,
        device: Option<Device>,
        placement: Placement,
    ) -> Result<(Values, BTreeSet<String>)> {
        let first = match device {
            Some(device) => device,
            None => Device::cpu()?,
        };
        let Self {
            graph,
            given,
            outputs,
        } = self;
        let mut scheduler = scheduler(first)?;
        let mut plan = Plan::new(graph, &scheduler, PlanOptions { placement })?;
        let on_cpu = plan
            .assigned()
            .filter(|node| node.device != first)
            .map(|node| node.op)
            .collect();
        for given in &given {
            given.set_plan(call, &mut plan)?;
        }
        plan.run(&mut scheduler).moved_to(call.at)?;
        if matches!(placement, Placement::Separate { .. }) {
            plan.check_sentinels().moved_to(call.at)?;
        }
        let wide = |output: &Output| {
            let values = plan.read_f32(output).moved_to(call.at)?;
            Ok(values.into_iter().map(f64::from).collect())
        };
        Ok((read(&outputs, wide)?, on_cpu))
    }

    fn read(&self, values: impl Fn(&Output) -> Result<Vec<f64>>) -> Result<Values> {
        read(&self.outputs, values)
    }
}

fn read(outputs: &[Made], values: impl Fn(&Output) -> Result<Vec<f64>>) -> Result<Values> {
    let read = outputs.iter().map(|made| match made {
        Made::Gradient(output) => values(output),
        Made::Nothing(elements) => Ok(vec![0.0; *elements]),
    });
    read.collect()
}

#[track_caller]
fn made<'g>(g: Builder<'g>, gradients: &Gradients<'g>, trained: &Trained<'g>) -> Result<Made> {
    let gradient = match gradients.of(trained.tensor) {
        Err(Error::Param(_)) => return Ok(Made::Nothing(trained.tensor.shape().elements())),
        gradient => gradient?,
    };
    let gradient = match gradient.is_contiguous() {
        true => gradient,
        false => gradient.cont()?,
    };
    let name = format!("gradient of {}", trained.name);
    Ok(Made::Gradient(g.output(&name, gradient)?))
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
