//! Epoch after epoch, with evaluation, early stop and checkpoints.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::early_stop::Best;
use super::{Dataset, EarlyStop, Evaluation, StepReport, Task, TrainError, Trainer, checkpoint};
use crate::backend::Executor;
use crate::error::{Moved, Result, here};

/// What a run reports.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A step was made.
    Step(StepReport),
    /// An epoch ended.
    Epoch(EpochReport),
}

/// One epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochReport {
    /// Its number, from 0.
    pub epoch: u64,
    /// The steps made so far.
    pub step: u64,
    /// The mean loss of its samples, each as it was before its step.
    pub loss: f64,
    /// What the model does on the validation set, where there is one.
    pub validation: Option<Evaluation>,
    /// Whether it is the best epoch so far. Without early stop none is.
    pub best: bool,
}

/// How often a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Every {
    /// After so many steps, counted from the first of all.
    Steps(u64),
    /// After so many epochs.
    Epochs(u64),
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// It made all its epochs.
    Epochs,
    /// The validation loss did not get better.
    Early,
    /// The callback said so.
    Callback,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finish {
    /// Why.
    pub stop: Stop,
    /// With early stop, the best epoch and its validation loss. Unless the callback stopped the run, the weights are those of that
    /// epoch.
    pub best: Option<(u64, f64)>,
}

/// What a run is to do: [`Trainer::fit`] takes it.
///
/// ```
/// use ggml_rs::train::{Arrays, EarlyStop, Every, Fit, Forward, Task, TrainOptions, Trainer};
/// # use ggml_rs::{DType, Device, Params};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.gguf");
/// # let device = Device::cpu()?;
/// # let mut backend = device.open()?;
/// # let weights = Params::builder().tensor("w", DType::F32, [1, 1])?.allocate(device)?;
/// # weights.zero()?;
/// let x: Vec<f32> = (0..40).map(|i| i as f32 / 40.0).collect();
/// let data = Arrays::new(&[1], x.clone(), &[1], x)?;
/// let (train, validation) = (data.subset(&(0..32).collect::<Vec<_>>())?, data.subset(&[33, 36, 39])?);
/// # let w = weights.get("w")?;
/// # let mut trainer = Trainer::new(&backend, train, &weights, TrainOptions::default(), move |g, batch| {
/// #     let outputs = g.param(&w)?.mul_mat(batch.features)?;
/// #     let error = outputs.sub(batch.labels)?;
/// #     Ok(Forward { outputs, loss: error.mul(error)?.mean()? })
/// # })?;
/// // At most 20 epochs; three without a better validation loss are the last.
/// let early = EarlyStop { patience: 3, min_delta: 0.0 };
/// let fit = Fit::epochs(20)
///     .validate(&validation, Task::Regress)
///     .early_stop(early)
///     .checkpoint(&path, Every::Epochs(1));
/// trainer.fit(&mut backend, fit)?;
/// // The same trainer, or one made with the same options in another process, goes on from the file.
/// trainer.restore(&path)?;
/// assert_eq!(trainer.progress().epoch, 20);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
///
/// A run that is resumed must be given the same validation set and early stop; the rest is in the checkpoint.
pub struct Fit<'a> {
    epochs: u64,
    validation: Option<(&'a dyn Dataset, Task)>,
    early_stop: Option<EarlyStop>,
    checkpoint: Option<(PathBuf, Every)>,
    callback: Option<Callback<'a>>,
}

type Callback<'a> = Box<dyn FnMut(Event) -> ControlFlow<()> + 'a>;

impl<'a> Fit<'a> {
    /// So many epochs, those that the trainer has made before included.
    #[must_use]
    pub fn epochs(epochs: u64) -> Self {
        Self {
            epochs,
            validation: None,
            early_stop: None,
            checkpoint: None,
            callback: None,
        }
    }

    /// Evaluates the model on `data` after each epoch.
    #[must_use]
    pub fn validate(mut self, data: &'a dyn Dataset, task: Task) -> Self {
        self.validation = Some((data, task));
        self
    }

    /// Stops once the validation loss does not get better, and goes back to the weights of the best epoch. They are kept on the host.
    #[must_use]
    pub fn early_stop(mut self, rule: EarlyStop) -> Self {
        self.early_stop = Some(rule);
        self
    }

    /// Writes a checkpoint to `path` every so often, and at the end ([`Trainer::save`]).
    #[must_use]
    pub fn checkpoint(mut self, path: impl AsRef<Path>, every: Every) -> Self {
        self.checkpoint = Some((path.as_ref().to_owned(), every));
        self
    }

    /// Calls this after each step and each epoch. [`ControlFlow::Break`] stops the run; so does a panic, which is the caller's. Either
    /// way the trainer is whole, and another `fit` goes on where this one stopped.
    #[must_use]
    pub fn on_event(mut self, callback: impl FnMut(Event) -> ControlFlow<()> + 'a) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    fn check(&self) -> Result<()> {
        let refuse = |field, detail: &str| {
            let detail = detail.to_owned();
            Err(TrainError::Options { field, detail }.into())
        };
        if self.early_stop.is_some() && self.validation.is_none() {
            return refuse(
                "early_stop",
                "it looks at a validation set: call validate() too",
            );
        }
        if let Some(EarlyStop { min_delta, .. }) = self.early_stop
            && !(min_delta >= 0.0 && min_delta.is_finite())
        {
            let detail = format!("min_delta {min_delta}: finite, and at least 0");
            return refuse("early_stop", &detail);
        }
        if let Some((_, Every::Steps(0) | Every::Epochs(0))) = &self.checkpoint {
            return refuse("checkpoint", "every 0: at least 1");
        }
        Ok(())
    }

    /// Whether a checkpoint is due.
    fn is_due(&self, event: &Event) -> bool {
        match (self.checkpoint.as_ref().map(|(_, every)| *every), event) {
            (Some(Every::Steps(every)), Event::Step(report)) => report.step.is_multiple_of(every),
            (Some(Every::Epochs(every)), Event::Epoch(report)) => {
                (report.epoch + 1).is_multiple_of(every)
            }
            _ => false,
        }
    }

    fn call(&mut self, event: Event) -> ControlFlow<()> {
        match &mut self.callback {
            Some(callback) => callback(event),
            None => ControlFlow::Continue(()),
        }
    }
}

impl<D: Dataset> Trainer<D> {
    /// Trains until `fit` is done, from wherever the trainer is.
    ///
    /// With early stop the weights are those of the best epoch afterwards, while the moments are those of the last step: save what
    /// is to be resumed with [`Fit::checkpoint`], which writes both, before it comes to that.
    ///
    /// # Errors
    /// [`TrainError::Options`] for an early stop without a validation set, and for options out of range; before the first step,
    /// [`TrainError::Dataset`] for a validation set that is none and [`TrainError::Checkpoint`] where no file can be made; as
    /// [`Trainer::step`], [`Trainer::evaluate`] and [`Trainer::save`].
    ///
    /// # Panics
    /// Where the callback panics, or the data set does.
    #[track_caller]
    pub fn fit(&mut self, on: &mut impl Executor, mut fit: Fit<'_>) -> Result<Finish> {
        fit.check()?;
        self.check_ends(&fit)?;
        let mut saved = None;
        let stop = loop {
            if fit
                .early_stop
                .is_some_and(|rule| rule.is_over(self.best.as_ref()))
            {
                break Stop::Early;
            }
            if self.progress().epoch >= fit.epochs {
                break Stop::Epochs;
            }
            let event = match self.step(on)? {
                Some(report) => Event::Step(report),
                None => Event::Epoch(self.close_epoch(on, &fit)?),
            };
            if fit.is_due(&event) {
                self.save_to(&fit)?;
                saved = Some(self.progress());
            }
            if fit.call(event).is_break() {
                break Stop::Callback;
            }
        };
        if saved != Some(self.progress()) {
            self.save_to(&fit)?;
        }
        if stop != Stop::Callback && fit.early_stop.is_some() {
            self.take_best()?;
        }
        let best = fit.early_stop.and(self.best.as_ref());
        let best = best.map(|best| (best.epoch, best.loss));
        Ok(Finish { stop, best })
    }

    /// Refuses at once what would end the run only after its first epoch, or its last.
    fn check_ends(&self, fit: &Fit<'_>) -> Result<()> {
        if let Some((data, _)) = fit.validation {
            self.dims.check(data)?;
        }
        match &fit.checkpoint {
            Some((path, _)) => checkpoint::check_place(path),
            None => Ok(()),
        }
    }

    #[track_caller]
    fn save_to(&self, fit: &Fit<'_>) -> Result<()> {
        match &fit.checkpoint {
            Some((path, _)) => self.save(path),
            None => Ok(()),
        }
    }

    /// Nothing changes before the evaluation has succeeded.
    #[track_caller]
    fn close_epoch(&mut self, on: &mut impl Executor, fit: &Fit<'_>) -> Result<EpochReport> {
        let validation = match fit.validation {
            Some((data, task)) => Some(self.evaluate(on, data, task)?),
            None => None,
        };
        let best = match (fit.early_stop, &validation) {
            (Some(rule), Some(found)) => self.judge(rule, found.loss.value)?,
            _ => false,
        };
        let epoch = self.progress().epoch;
        Ok(EpochReport {
            epoch,
            step: self.progress().step,
            loss: self.end_epoch(),
            validation,
            best,
        })
    }

    /// Remembers the weights where they are the best so far, and says whether they are.
    #[track_caller]
    fn judge(&mut self, rule: EarlyStop, loss: f64) -> Result<bool> {
        let at = here();
        if rule.improves(self.best.as_ref(), loss) {
            let weights = self.trained.weights.iter();
            self.best = Some(Best {
                loss,
                epoch: self.progress().epoch,
                waited: 0,
                weights: weights
                    .map(|weight| weight.read_f32())
                    .collect::<Result<_>>()
                    .moved_to(at)?,
            });
            return Ok(true);
        }
        if let Some(best) = &mut self.best {
            best.waited += 1;
        }
        Ok(false)
    }

    #[track_caller]
    fn take_best(&self) -> Result<()> {
        let at = here();
        let Some(best) = &self.best else {
            return Ok(());
        };
        let mut weights = self.trained.weights.iter().zip(&best.weights);
        weights
            .try_for_each(|(weight, values)| weight.set_f32(values))
            .moved_to(at)
    }
}
