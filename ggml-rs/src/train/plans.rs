//! The graphs of training, planned: gradients of a batch, an optimizer's step, and the forward alone.
//!
//! A step is two runs. The first adds a batch's gradients to sums that lie on the device; the second steps and clears them. In
//! between the host looks at the loss and at the sums' squares, so that a value that is not finite never reaches the weights.

use super::model::{BatchInputs, Dims, HostBatch, Model, check_outputs};
use super::{Clip, Optimizer, TrainError};
use crate::backend::Executor;
use crate::dtype::DType::F32;
use crate::error::{Call, Error, Moved, Result};
use crate::graph::{Builder, Gradients, Graph, Input, Output, Tensor};
use crate::params::{Param, Params};
use crate::plan::{Plan, PlanOptions};

/// What the names of tensors begin with that are no weights.
pub(super) const OURS: char = '@';

/// What is trained, and what training keeps for it, in the same order.
pub(super) struct Trained {
    pub weights: Params,
    /// Of gradients, over the batches of a step. Zero between steps.
    pub sums: Params,
    /// AdamW's means and mean squares.
    pub moments: Option<[Params; 2]>,
}

impl Trained {
    /// # Errors
    /// [`TrainError::Options`] for a name that begins as those of what training keeps; [`Error::Param`] for one that leaves no room
    /// for that beginning; [`Error::Alloc`].
    pub fn new(weights: &Params, optimizer: Optimizer) -> Result<Self> {
        if let Some(weight) = weights
            .iter()
            .find(|weight| weight.name().starts_with(OURS))
        {
            let detail = format!(
                "`{}`: names that begin with {OURS} are the trainer's",
                weight.name()
            );
            let field = "weights";
            return Err(TrainError::Options { field, detail }.into());
        }
        let like = |kind: &str| {
            let prefix = format!("{OURS}{kind}.");
            let builder = weights
                .iter()
                .try_fold(Params::builder(), |builder, weight| {
                    builder.tensor(&format!("{prefix}{}", weight.name()), F32, weight.shape())
                })?;
            let params = builder.allocate(weights.device())?;
            params.zero()?;
            Ok::<_, Error>(params)
        };
        let moments = match optimizer {
            Optimizer::AdamW(_) => Some([like("m")?, like("v")?]),
            Optimizer::Sgd(_) => None,
        };
        Ok(Self {
            weights: weights.clone(),
            sums: like("g")?,
            moments,
        })
    }
}

/// Adds the gradients of a batch to the sums.
pub(super) struct GradientPlan {
    plan: Plan,
    batch: BatchInputs,
    share: Input,
    loss: Output,
    squares: Vec<Output>,
}

impl GradientPlan {
    pub fn new(
        call: Call,
        on: &impl Executor,
        dims: &Dims,
        model: &Model,
        trained: &Trained,
        samples: usize,
    ) -> Result<Self> {
        let (graph, (batch, share, loss, squares)) = Graph::build(|g| {
            // Marked before the model is built, so that one that takes a trained parameter as a frozen weight is refused.
            let marked: Vec<_> = trained
                .weights
                .iter()
                .map(|w| g.param(&w))
                .collect::<Result<_>>()
                .moved_to(call.at)?;
            let (batch, inputs) = dims.batch(call, g, samples)?;
            let forward = model(g, batch)?;
            check_outputs(call, forward.outputs, samples)?;
            // The part of the step's samples that this batch is, so that the sums are means over all of them.
            let (share, share_in) = g.input("share", F32, [1]).moved_to(call.at)?;
            let loss = forward.loss.mul(share).moved_to(call.at)?;
            let gradients = g.backward(loss).moved_to(call.at)?;
            let squares = sums(g, trained, &marked, &gradients).moved_to(call.at)?;
            let loss = g.output("loss", forward.loss).moved_to(call.at)?;
            Ok((inputs, share_in, loss, squares))
        })?;
        Ok(Self {
            plan: Plan::new(graph, on, PlanOptions::default())?,
            batch,
            share,
            loss,
            squares,
        })
    }

    /// Returns the batch's loss. `share` is the part of the step's samples that the batch is.
    pub fn run(&mut self, on: &mut impl Executor, batch: &HostBatch, share: f32) -> Result<f32> {
        self.batch.set(&mut self.plan, batch)?;
        self.plan.set_f32(&self.share, &[share])?;
        self.plan.run(on)?;
        Ok(self.plan.read_f32(&self.loss)?[0])
    }

    /// The sums of squares of the sums, after this batch, by parameter.
    pub fn squares(&self) -> Result<Vec<f32>> {
        let squares = self.squares.iter();
        squares
            .map(|output| Ok(self.plan.read_f32(output)?[0]))
            .collect()
    }
}

/// Adds the gradients to the sums, and squares these.
fn sums<'g>(
    g: Builder<'g>,
    trained: &Trained,
    marked: &[Tensor<'g>],
    gradients: &Gradients<'g>,
) -> Result<Vec<Output>> {
    let mut squares = Vec::new();
    for ((index, weight), &tensor) in trained.weights.iter().enumerate().zip(marked) {
        let param = || weight.name().to_owned();
        gradients
            .of(tensor)
            .map_err(|_| TrainError::Unused { param: param() })?;
        let sum = g.weight(&nth(&trained.sums, index))?;
        let sum = gradients.accumulate(tensor, sum)?;
        squares.push(g.output(&format!("squares {index}"), sum.sqr()?.sum()?)?);
    }
    Ok(squares)
}

/// One step of the optimizer by the sums, which are zero afterwards.
pub(super) struct StepPlan {
    plan: Plan,
    settings: Input,
    factor: Option<Input>,
}

impl StepPlan {
    pub fn new(
        on: &impl Executor,
        trained: &Trained,
        optimizer: Optimizer,
        clip: Option<Clip>,
    ) -> Result<Self> {
        let (graph, (settings, factor)) = Graph::build(|g| {
            let (settings, settings_in) = g.input("settings", F32, [optimizer.settings()])?;
            let factor = match clip {
                Some(Clip::Norm(_)) => Some(g.input("factor", F32, [1])?),
                Some(Clip::Value(_)) | None => None,
            };
            for (index, weight) in trained.weights.iter().enumerate() {
                let sum = g.weight(&nth(&trained.sums, index))?;
                let gradient = match (clip, factor) {
                    (Some(Clip::Value(limit)), _) => sum.clamp(-limit, limit)?,
                    (_, Some((factor, _))) => sum.mul(factor)?,
                    _ => sum,
                };
                let weight = g.param(&weight)?;
                // Both write to parameters, so they run without being outputs.
                step(g, trained, index, weight, gradient, settings)?;
                sum.fill_inplace(0.0)?;
            }
            Ok((settings_in, factor.map(|(_, input)| input)))
        })?;
        Ok(Self {
            plan: Plan::new(graph, on, PlanOptions::default())?,
            settings,
            factor,
        })
    }

    pub fn run(&mut self, on: &mut impl Executor, settings: &[f32], factor: f32) -> Result<()> {
        self.plan.set_f32(&self.settings, settings)?;
        if let Some(input) = &self.factor {
            self.plan.set_f32(input, &[factor])?;
        }
        self.plan.run(on)
    }
}

fn step<'g>(
    g: Builder<'g>,
    trained: &Trained,
    index: usize,
    weight: Tensor<'g>,
    gradient: Tensor<'g>,
    settings: Tensor<'g>,
) -> Result<Tensor<'g>> {
    match &trained.moments {
        Some([means, squares]) => {
            let (m, v) = (
                g.weight(&nth(means, index))?,
                g.weight(&nth(squares, index))?,
            );
            weight.opt_step_adamw(gradient, m, v, settings)
        }
        None => weight.opt_step_sgd(gradient, settings),
    }
}

fn nth(params: &Params, index: usize) -> Param {
    params
        .iter()
        .nth(index)
        .expect("made with as many as the weights")
}

/// The forward alone.
pub(super) struct ForwardPlan {
    plan: Plan,
    batch: BatchInputs,
    outputs: Output,
}

impl ForwardPlan {
    pub fn new(
        call: Call,
        on: &impl Executor,
        dims: &Dims,
        model: &Model,
        samples: usize,
    ) -> Result<Self> {
        let (graph, (batch, outputs)) = Graph::build(|g| {
            let (batch, inputs) = dims.batch(call, g, samples)?;
            let outputs = model(g, batch)?.outputs;
            check_outputs(call, outputs, samples)?;
            let outputs = match outputs.is_contiguous() {
                true => outputs,
                false => outputs.cont().moved_to(call.at)?,
            };
            Ok((inputs, g.output("outputs", outputs).moved_to(call.at)?))
        })?;
        Ok(Self {
            plan: Plan::new(graph, on, PlanOptions::default())?,
            batch,
            outputs,
        })
    }

    pub fn run(&mut self, on: &mut impl Executor, batch: &HostBatch) -> Result<Vec<f32>> {
        self.batch.set(&mut self.plan, batch)?;
        self.plan.run(on)?;
        self.plan.read_f32(&self.outputs)
    }
}
