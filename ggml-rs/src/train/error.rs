//! What can go wrong in training, beyond what can go wrong with its graphs.

use std::path::PathBuf;

use crate::error::Error;

/// Why a trainer refused, or stopped. It comes as [`Error::Train`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// An option is out of range.
    #[error("option {field}: {detail}")]
    Options {
        /// Which option.
        field: &'static str,
        /// What it is, and what it may be.
        detail: String,
    },
    /// A data set whose arrays do not fit each other, or that does not fit the model.
    #[error("data set: {detail}")]
    Dataset {
        /// What does not fit, with both sizes.
        detail: String,
    },
    /// A data set gave no sample.
    #[error("sample {index}: {detail}")]
    Sample {
        /// The sample that was asked for.
        index: usize,
        /// What the data set said.
        detail: String,
    },
    /// The loss does not depend on a parameter that is to be trained.
    #[error(
        "the loss does not depend on `{param}`: take it with Builder::param in the model, or out of the trained parameters"
    )]
    Unused {
        /// The parameter's name.
        param: String,
    },
    /// What a batch gave is NaN or infinite. The weights are those after the last step that was whole.
    #[error(
        "the {what} is {value} in step {step} (epoch {epoch}, batch {batch}, samples {})",
        listed(.samples)
    )]
    NotFinite {
        /// `loss`, or the gradient of which parameter.
        what: String,
        /// What it is; of a gradient the sum of its squares.
        value: f32,
        /// The step that was not made, the first of all being 1.
        step: u64,
        /// The epoch, from 0.
        epoch: u64,
        /// The batch in the epoch, from 0.
        batch: usize,
        /// The samples of that batch, by their place in the data set.
        samples: Vec<usize>,
    },
    /// The device failed while a step was written, so that weights and moments may be of two steps.
    #[error("a step was cut off by an earlier failure: restore a checkpoint")]
    Torn,
    /// A checkpoint is of another run: resumed here, it would not go on as it was.
    #[error("the checkpoint has {what} {saved}, this trainer {here}")]
    Mismatch {
        /// Which option or tensor.
        what: String,
        /// As saved.
        saved: String,
        /// As it is here.
        here: String,
    },
    /// A checkpoint could not be written or read.
    #[error("checkpoint {}: {detail}", .path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What the system or the reader said.
        detail: String,
    },
}

impl From<TrainError> for Error {
    fn from(error: TrainError) -> Self {
        Self::Train(Box::new(error))
    }
}

/// The first few samples.
fn listed(samples: &[usize]) -> String {
    const SHOWN: usize = 8;
    let mut text: Vec<_> = samples.iter().take(SHOWN).map(usize::to_string).collect();
    if samples.len() > SHOWN {
        text.push(format!("and {} more", samples.len() - SHOWN));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_found_again() {
        let error = TrainError::NotFinite {
            what: "gradient of `w`".into(),
            value: f32::INFINITY,
            step: 7,
            epoch: 1,
            batch: 2,
            samples: (40..52).collect(),
        };
        assert_eq!(
            Error::from(error).to_string(),
            "training: the gradient of `w` is inf in step 7 (epoch 1, batch 2, samples 40, 41, 42, 43, 44, 45, 46, 47, and 4 more)"
        );
    }
}
