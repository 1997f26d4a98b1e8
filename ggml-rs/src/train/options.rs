//! What a trainer is told once, and cannot change without becoming another run.

use super::{Clip, Schedule, TrainError};
use crate::graph::AdamW;

/// How to train.
///
/// ```
/// use ggml_rs::AdamW;
/// use ggml_rs::train::{Clip, Optimizer, TrainOptions};
///
/// let options = TrainOptions {
///     batch: 8,
///     accumulate: 4,
///     clip: Some(Clip::Norm(1.0)),
///     optimizer: Optimizer::AdamW(AdamW { learning_rate: 3e-4, ..AdamW::default() }),
///     ..TrainOptions::default()
/// };
/// assert_eq!(options.batch * options.accumulate, 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainOptions {
    /// Samples of a batch. The last batch of an epoch has what is left: nothing is dropped, and nothing comes twice.
    pub batch: usize,
    /// Batches of a step. Their gradients are summed so that the step is that of one large batch. The last step of an epoch has
    /// what is left.
    pub accumulate: usize,
    /// What makes a step of the gradients.
    pub optimizer: Optimizer,
    /// How its learning rate changes.
    pub schedule: Schedule,
    /// What gradients are cut to.
    pub clip: Option<Clip>,
    /// The seed of every epoch's order ([`shuffled`](super::shuffled)); `None` keeps the order of the data set.
    pub shuffle: Option<u64>,
}

impl Default for TrainOptions {
    /// Batches of 32, one a step, shuffled with seed 0; AdamW at a constant rate, no clipping.
    fn default() -> Self {
        Self {
            batch: 32,
            accumulate: 1,
            optimizer: Optimizer::AdamW(AdamW::default()),
            schedule: Schedule::default(),
            clip: None,
            shuffle: Some(0),
        }
    }
}

/// What makes a step of gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Optimizer {
    /// [`Tensor::opt_step_adamw`](crate::Tensor::opt_step_adamw).
    AdamW(AdamW),
    /// [`Tensor::opt_step_sgd`](crate::Tensor::opt_step_sgd).
    Sgd(Sgd),
}

/// Plain gradient descent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// The length of a step.
    pub learning_rate: f32,
    /// What a step takes off the weights, as a part of them and times `learning_rate`.
    pub weight_decay: f32,
}

impl Optimizer {
    /// The learning rate that a schedule begins with.
    pub(super) fn learning_rate(self) -> f32 {
        match self {
            Self::AdamW(AdamW { learning_rate, .. }) | Self::Sgd(Sgd { learning_rate, .. }) => {
                learning_rate
            }
        }
    }

    /// How many values a step is told.
    pub(super) fn settings(self) -> usize {
        self.values(1, 0.0).len()
    }

    /// What the `step`-th step is told, the first being 1.
    pub(super) fn values(self, step: u64, learning_rate: f32) -> Vec<f32> {
        match self {
            Self::AdamW(adamw) => {
                let adamw = AdamW {
                    learning_rate,
                    ..adamw
                };
                adamw
                    .values(u32::try_from(step).unwrap_or(u32::MAX))
                    .to_vec()
            }
            Self::Sgd(sgd) => vec![learning_rate, sgd.weight_decay],
        }
    }

    fn check(self) -> Result<(), TrainError> {
        let at_least_zero = |field, value: f32| match value >= 0.0 && value.is_finite() {
            true => Ok(()),
            false => refuse(field, format!("{value}: finite, and at least 0")),
        };
        let below_one = |field, value: f32| match (0.0..1.0).contains(&value) {
            true => Ok(()),
            false => refuse(field, format!("{value}: at least 0 and below 1")),
        };
        at_least_zero("learning_rate", self.learning_rate())?;
        match self {
            Self::AdamW(adamw) => {
                below_one("beta1", adamw.beta1)?;
                below_one("beta2", adamw.beta2)?;
                // Where a gradient was always zero, a step without it is 0 / 0.
                if !(adamw.eps > 0.0 && adamw.eps.is_finite()) {
                    return refuse("eps", format!("{}: finite, and above 0", adamw.eps));
                }
                at_least_zero("weight_decay", adamw.weight_decay)
            }
            Self::Sgd(sgd) => at_least_zero("weight_decay", sgd.weight_decay),
        }
    }
}

impl TrainOptions {
    /// # Errors
    /// [`TrainError::Options`].
    pub(super) fn check(&self) -> Result<(), TrainError> {
        for (field, count) in [("batch", self.batch), ("accumulate", self.accumulate)] {
            if count == 0 {
                return refuse(field, "0: at least 1".to_owned());
            }
        }
        self.optimizer.check()?;
        self.schedule.check()?;
        self.clip.map_or(Ok(()), Clip::check)
    }

    /// How many samples a whole step is made of.
    pub(super) fn samples_of_step(&self) -> usize {
        self.batch.saturating_mul(self.accumulate)
    }

    /// The learning rate of the step after `done` steps.
    pub(super) fn learning_rate(&self, done: u64) -> f32 {
        (f64::from(self.optimizer.learning_rate()) * self.schedule.factor(done)) as f32
    }

    /// What a resumed run must have as it was saved. Rust prints numbers with as many digits as tell them apart.
    pub(super) fn fingerprint(&self) -> Vec<(&'static str, String)> {
        vec![
            ("batch", self.batch.to_string()),
            ("accumulate", self.accumulate.to_string()),
            ("optimizer", format!("{:?}", self.optimizer)),
            ("schedule", format!("{:?}", self.schedule)),
            ("clip", format!("{:?}", self.clip)),
            ("shuffle", format!("{:?}", self.shuffle)),
        ]
    }
}

fn refuse(field: &'static str, detail: String) -> Result<(), TrainError> {
    Err(TrainError::Options { field, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(options: TrainOptions) -> Option<&'static str> {
        match options.check() {
            Err(TrainError::Options { field, .. }) => Some(field),
            _ => None,
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        let defaults = TrainOptions::default();
        assert_eq!(field(defaults), None);
        let batch = TrainOptions {
            batch: 0,
            ..defaults
        };
        assert_eq!(field(batch), Some("batch"));
        let accumulate = TrainOptions {
            accumulate: 0,
            ..defaults
        };
        assert_eq!(field(accumulate), Some("accumulate"));
        let clip = TrainOptions {
            clip: Some(Clip::Norm(0.0)),
            ..defaults
        };
        assert_eq!(field(clip), Some("clip"));
        let of = |adamw| {
            field(TrainOptions {
                optimizer: Optimizer::AdamW(adamw),
                ..defaults
            })
        };
        let adamw = AdamW::default();
        assert_eq!(
            of(AdamW {
                learning_rate: f32::NAN,
                ..adamw
            }),
            Some("learning_rate")
        );
        assert_eq!(
            of(AdamW {
                beta1: 1.0,
                ..adamw
            }),
            Some("beta1")
        );
        assert_eq!(
            of(AdamW {
                beta2: -0.1,
                ..adamw
            }),
            Some("beta2")
        );
        assert_eq!(of(AdamW { eps: 0.0, ..adamw }), Some("eps"));
        assert_eq!(
            of(AdamW {
                weight_decay: f32::INFINITY,
                ..adamw
            }),
            Some("weight_decay")
        );
        let sgd = Sgd {
            learning_rate: 0.1,
            weight_decay: -1.0,
        };
        let sgd = TrainOptions {
            optimizer: Optimizer::Sgd(sgd),
            ..defaults
        };
        assert_eq!(field(sgd), Some("weight_decay"));
    }

    /// Two options that differ in the last bit are two runs.
    #[test]
    fn fingerprints_tell_options_apart() {
        let of = |learning_rate| {
            let optimizer = Optimizer::Sgd(Sgd {
                learning_rate,
                weight_decay: 0.0,
            });
            TrainOptions {
                optimizer,
                ..TrainOptions::default()
            }
            .fingerprint()
        };
        assert_eq!(of(0.1), of(0.1));
        assert_ne!(of(0.1), of(0.1_f32.next_up()));
    }
}
