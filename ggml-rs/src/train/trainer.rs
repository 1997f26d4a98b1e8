//! The trainer: a model, its data, an optimizer, and how far they are.

use std::ops::Range;

use super::early_stop::Best;
use super::metrics::Tally;
use super::model::{Dims, HostBatch, Model};
use super::plans::{ForwardPlan, GradientPlan, StepPlan, Trained};
use super::shuffle::{in_order, shuffle};
use super::{Batch, Clip, Dataset, Evaluation, Forward, Task, TrainError, TrainOptions, data};
use crate::backend::Executor;
use crate::error::{Call, Moved, Result, here};
use crate::graph::Builder;
use crate::memory::zeros;
use crate::params::Params;

/// Trains the parameters of a model. See the [module](super).
///
/// What it says of its state holds after every call, one that failed included: a step is made as a whole or not at all, and a panic of
/// the data set or of a callback leaves it between two steps. The one exception is a device that fails while it writes a step,
/// after which every step is [`TrainError::Torn`] until [`Trainer::restore`].
pub struct Trainer<D> {
    data: D,
    pub(super) dims: Dims,
    pub(super) options: TrainOptions,
    model: Model,
    pub(super) trained: Trained,
    /// By the samples of a batch: whole ones, and what is left at the end of an epoch.
    gradients: Vec<(usize, GradientPlan)>,
    step: StepPlan,
    /// By the samples of a batch.
    forward: Vec<(usize, ForwardPlan)>,
    /// The samples of the epoch. How many there are is what the data set said once: plans rest on it.
    pub(super) order: Vec<usize>,
    pub(super) progress: Progress,
    /// The sum over the epoch's samples so far.
    pub(super) loss_sum: f64,
    pub(super) best: Option<Best>,
    host: HostBatch,
    /// Whether the sums of gradients hold something.
    dirty: bool,
    pub(super) torn: bool,
}

/// How far a trainer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Steps made.
    pub step: u64,
    /// Epochs finished, so also the number of the current one, from 0.
    pub epoch: u64,
    /// Samples of the current epoch that steps were made of.
    pub samples: usize,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Its number, the first of all being 1.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// Of how many samples it was made.
    pub samples: usize,
    /// Which part of the epoch is done, 0 to 1.
    pub part: f64,
    /// The loss before the step: the mean over its samples.
    pub loss: f64,
    /// The root of the sum of all squares of all gradients, before they were clipped.
    pub gradient_norm: f64,
    /// The learning rate.
    pub learning_rate: f32,
}

impl<D: Dataset> Trainer<D> {
    /// Builds the graphs that train every parameter of `weights`, and allocates them: forward, loss, backward and sums of gradients
    /// for whole batches and for the last one, and a step of the optimizer.
    ///
    /// `model` makes outputs and a loss of a batch. It takes the parameters with [`Builder::param`], and may take others as frozen
    /// with [`Builder::weight`].
    ///
    /// # Errors
    /// [`TrainError::Options`]; [`TrainError::Dataset`]; [`Error::Alloc`](crate::Error::Alloc); [`TrainError::Unused`] for a parameter that the loss does not depend on;
    /// whatever the model returns; what [`Builder::backward`] and [`Plan::new`](crate::Plan::new) refuse.
    #[track_caller]
    pub fn new(
        on: &impl Executor,
        data: D,
        weights: &Params,
        options: TrainOptions,
        model: impl for<'g> Fn(Builder<'g>, Batch<'g>) -> Result<Forward<'g>> + Send + 'static,
    ) -> Result<Self> {
        let call = Call::new("Trainer::new");
        options.check()?;
        let dims = Dims::of(&data)?;
        dims.check(&data)?;
        let mut order = zeros(data.len(), "the order of samples")?;
        arrange(&mut order, &options, 0);
        let model: Model = Box::new(model);
        let trained = Trained::new(weights, options.optimizer).moved_to(call.at)?;
        let step = StepPlan::new(on, &trained, options.optimizer, options.clip);
        let step = step.moved_to(call.at)?;
        let gradients = batch_sizes(order.len(), options.batch)
            .map(|samples| {
                let plan = GradientPlan::new(call, on, &dims, &model, &trained, samples)?;
                Ok((samples, plan))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            order,
            data,
            dims,
            options,
            model,
            trained,
            gradients,
            step,
            forward: Vec::new(),
            progress: Progress::default(),
            loss_sum: 0.0,
            best: None,
            host: HostBatch::default(),
            dirty: false,
            torn: false,
        })
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// What it was told.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// What it trains on.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Makes one step; `None` at the end of the epoch, after which comes [`Trainer::end_epoch`].
    ///
    /// # Errors
    /// [`TrainError::NotFinite`], [`TrainError::Sample`], [`TrainError::Torn`]; what [`Plan::run`](crate::Plan::run) says. No step
    /// was made then.
    ///
    /// # Panics
    /// Where the data set or a custom op of the model panics.
    #[track_caller]
    pub fn step(&mut self, on: &mut impl Executor) -> Result<Option<StepReport>> {
        let at = here();
        self.one_step(on).moved_to(at)
    }

    fn one_step(&mut self, on: &mut impl Executor) -> Result<Option<StepReport>> {
        if self.torn {
            return Err(TrainError::Torn.into());
        }
        let begin = self.progress.samples;
        let most = self.options.samples_of_step();
        let end = begin.saturating_add(most).min(self.order.len());
        if begin == end {
            return Ok(None);
        }
        self.clear_sums()?;
        let (mut loss, mut squares) = (0.0, 0.0);
        for start in (begin..end).step_by(self.options.batch) {
            let batch = start..(start + self.options.batch).min(end);
            let share = batch.len() as f32 / (end - begin) as f32;
            let of_batch = self.add_batch(on, batch.clone(), share)?;
            loss += f64::from(of_batch.loss) * batch.len() as f64;
            squares = of_batch.squares;
        }
        let gradient_norm = squares.sqrt();
        let learning_rate = self.write_step(on, gradient_norm)?;

        self.progress.step += 1;
        self.progress.samples = end;
        self.loss_sum += loss;
        Ok(Some(StepReport {
            step: self.progress.step,
            epoch: self.progress.epoch,
            samples: end - begin,
            part: end as f64 / self.order.len() as f64,
            loss: loss / (end - begin) as f64,
            gradient_norm,
            learning_rate,
        }))
    }

    /// Ends the epoch, wherever it is, and returns the mean loss of its samples, each as it was before its step; NaN if there was
    /// no step. The next epoch begins with an order of its own.
    pub fn end_epoch(&mut self) -> f64 {
        let mean = self.loss_sum / self.progress.samples as f64;
        self.enter(Progress {
            step: self.progress.step,
            epoch: self.progress.epoch + 1,
            samples: 0,
        });
        mean
    }

    /// Goes to a place in the run.
    pub(super) fn enter(&mut self, progress: Progress) {
        self.progress = progress;
        self.loss_sum = 0.0;
        arrange(&mut self.order, &self.options, progress.epoch);
    }

    /// Adds a batch's gradients to the sums.
    fn add_batch(
        &mut self,
        on: &mut impl Executor,
        batch: Range<usize>,
        share: f32,
    ) -> Result<OfBatch> {
        let samples = &self.order[batch.clone()];
        self.dims
            .fetch(&self.data, samples.iter().copied(), &mut self.host)?;
        let plan = self
            .gradients
            .iter_mut()
            .find(|(size, _)| *size == batch.len());
        let (_, plan) = plan.expect("planned for every size of a batch");
        self.dirty = true;
        let loss = plan.run(on, &self.host, share)?;
        let refuse = |what: String, value: f32| TrainError::NotFinite {
            what,
            value,
            step: self.progress.step + 1,
            epoch: self.progress.epoch,
            batch: batch.start / self.options.batch,
            samples: samples.to_vec(),
        };
        if !loss.is_finite() {
            return Err(refuse("loss".to_owned(), loss).into());
        }
        let squares = plan.squares()?;
        for (weight, &square) in self.trained.weights.iter().zip(&squares) {
            if !square.is_finite() {
                return Err(refuse(format!("gradient of `{}`", weight.name()), square).into());
            }
        }
        Ok(OfBatch {
            loss,
            squares: squares.iter().map(|&square| f64::from(square)).sum(),
        })
    }

    /// Steps by the sums, and returns the learning rate.
    fn write_step(&mut self, on: &mut impl Executor, gradient_norm: f64) -> Result<f32> {
        let learning_rate = self.options.learning_rate(self.progress.step);
        let settings = self
            .options
            .optimizer
            .values(self.progress.step + 1, learning_rate);
        let factor = self
            .options
            .clip
            .map_or(1.0, |clip: Clip| clip.factor(gradient_norm));
        // Only a run that ended has written everything.
        self.torn = true;
        self.step.run(on, &settings, factor)?;
        self.torn = false;
        self.dirty = false;
        Ok(learning_rate)
    }

    /// Clears what a step that failed, or panicked, left behind.
    fn clear_sums(&mut self) -> Result<()> {
        if self.dirty {
            self.trained.sums.zero()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Runs the model on a data set, by the weights as they are, and compares its outputs with the labels.
    ///
    /// # Errors
    /// [`TrainError::Dataset`] unless samples are as those of the training data, and outputs as many as labels;
    /// [`TrainError::Sample`]; what [`Plan::run`](crate::Plan::run) says.
    #[track_caller]
    pub fn evaluate(
        &mut self,
        on: &mut impl Executor,
        data: &(impl Dataset + ?Sized),
        task: Task,
    ) -> Result<Evaluation> {
        let call = Call::new("Trainer::evaluate");
        let mut tally = Tally::new(task);
        self.each_output(call, on, data, |outputs, labels| {
            if outputs.len() != labels.len() {
                let detail = format!(
                    "a sample has {} labels, and the model gives {} outputs for it",
                    labels.len(),
                    outputs.len()
                );
                return Err(TrainError::Dataset { detail }.into());
            }
            tally.add(outputs, labels);
            Ok(())
        })?;
        Ok(tally.finish())
    }

    /// The model's outputs for every sample of a data set, one after the other. Its labels are not looked at.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    #[track_caller]
    pub fn predict(
        &mut self,
        on: &mut impl Executor,
        data: &(impl Dataset + ?Sized),
    ) -> Result<Vec<f32>> {
        let call = Call::new("Trainer::predict");
        let mut all = Vec::new();
        self.each_output(call, on, data, |outputs, _| {
            all.extend_from_slice(outputs);
            Ok(())
        })?;
        Ok(all)
    }

    fn each_output(
        &mut self,
        call: Call,
        on: &mut impl Executor,
        data: &(impl Dataset + ?Sized),
        mut each: impl FnMut(&[f32], &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.dims.check(data)?;
        let labels = data::size(&self.dims.labels);
        for start in (0..data.len()).step_by(self.options.batch) {
            let batch = start..(start + self.options.batch).min(data.len());
            self.dims.fetch(data, batch.clone(), &mut self.host)?;
            let plan = forward_plan(call, self, on, batch.len())?;
            let outputs = self.forward[plan].1.run(on, &self.host);
            let outputs = outputs.moved_to(call.at)?;
            let samples = outputs.chunks_exact(outputs.len() / batch.len());
            for (outputs, labels) in samples.zip(self.host.labels.chunks_exact(labels)) {
                each(outputs, labels)?;
            }
        }
        Ok(())
    }
}

/// What a batch gave.
struct OfBatch {
    loss: f32,
    /// Of all sums of gradients, after it.
    squares: f64,
}

/// The place of the plan for batches of so many samples, which is made where there is none.
fn forward_plan<D>(
    call: Call,
    trainer: &mut Trainer<D>,
    on: &impl Executor,
    samples: usize,
) -> Result<usize> {
    /// Whole batches and the last ones of a few data sets: beyond that, memory is worth more than the time to plan.
    const KEPT: usize = 4;
    let plans = &mut trainer.forward;
    if let Some(known) = plans.iter().position(|(size, _)| *size == samples) {
        return Ok(known);
    }
    let plan = ForwardPlan::new(call, on, &trainer.dims, &trainer.model, samples)?;
    if plans.len() == KEPT {
        plans.remove(0);
    }
    plans.push((samples, plan));
    Ok(plans.len() - 1)
}

/// How many samples batches have, each number once.
fn batch_sizes(len: usize, batch: usize) -> impl Iterator<Item = usize> {
    let whole = (len >= batch).then_some(batch);
    let rest = Some(len % batch).filter(|&rest| rest > 0);
    whole.into_iter().chain(rest)
}

/// Makes the order of an epoch.
fn arrange(order: &mut [usize], options: &TrainOptions, epoch: u64) {
    match options.shuffle {
        Some(seed) => shuffle(seed, epoch, order),
        None => in_order(order),
    }
}

impl<D> std::fmt::Debug for Trainer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer")
            .field("options", &self.options)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_may_go_to_another_thread() {
        fn assert_send<T: Send>() {}
        assert_send::<Trainer<crate::train::Arrays>>();
    }

    /// No device here fails when it is told to, so the mark of one that did is set by hand.
    #[test]
    fn a_torn_step_is_not_built_upon() {
        let device = crate::Device::cpu().unwrap();
        let mut backend = device.open().unwrap();
        let data = crate::train::Arrays::new(&[1], vec![1.0; 4], &[1], vec![2.0; 4]).unwrap();
        let weights = Params::builder()
            .tensor("w", crate::DType::F32, [1, 1])
            .unwrap();
        let weights = weights.allocate(device).unwrap();
        weights.zero().unwrap();
        let w = weights.get("w").unwrap();
        let options = TrainOptions::default();
        let mut trainer = Trainer::new(&backend, data, &weights, options, move |g, batch| {
            let outputs = g.param(&w)?.mul_mat(batch.features)?;
            let error = outputs.sub(batch.labels)?;
            let loss = error.mul(error)?.mean()?;
            Ok(Forward { loss, outputs })
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.gguf");
        trainer.save(&path).unwrap();

        trainer.torn = true;
        trainer.dirty = true;
        let torn = |result: Result<()>| match result {
            Err(crate::Error::Train(error)) => *error == TrainError::Torn,
            _ => false,
        };
        assert!(torn(trainer.step(&mut backend).map(drop)));
        assert!(torn(trainer.write_to(Vec::new())));
        let refused = trainer.save(&path).unwrap_err().to_string();
        assert!(refused.contains("restore a checkpoint"), "{refused}");
        trainer.restore(&path).unwrap();
        assert!(trainer.step(&mut backend).unwrap().is_some());
    }

    #[test]
    fn batches_have_these_sizes() {
        let sizes = |len, batch| batch_sizes(len, batch).collect::<Vec<_>>();
        assert_eq!(sizes(10, 5), [5]);
        assert_eq!(sizes(11, 5), [5, 1]);
        assert_eq!(sizes(3, 5), [3]);
    }
}
