//! A model as a trainer sees it: a closure that turns a batch into outputs and a loss.

use super::{Dataset, TrainError, data};
use crate::dtype::DType;
use crate::error::{Call, Moved, Result};
use crate::graph::{Builder, Input, Tensor};
use crate::plan::Plan;

/// The samples of a batch, in a graph under construction.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'g> {
    /// The features, F32: a sample's dimensions, and the samples behind.
    pub features: Tensor<'g>,
    /// The labels, F32: likewise.
    pub labels: Tensor<'g>,
    /// How many samples. Not every batch is whole: take it from here.
    pub samples: usize,
}

/// What a model makes of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'g> {
    /// One F32 element: the **mean** over the batch's samples. Where batches are put together, each counts by its samples.
    pub loss: Tensor<'g>,
    /// What the model says, the samples in the last dimension: what [`Trainer::evaluate`](super::Trainer::evaluate) and
    /// [`Trainer::predict`](super::Trainer::predict) read.
    pub outputs: Tensor<'g>,
}

/// The closure. It is called once for each graph that is built: for training and for evaluation, for whole batches and the last.
pub(super) type Model = Box<dyn for<'g> Fn(Builder<'g>, Batch<'g>) -> Result<Forward<'g>> + Send>;

/// The dimensions of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dims {
    pub features: Vec<usize>,
    pub labels: Vec<usize>,
}

/// Where a plan takes a batch.
pub(super) struct BatchInputs {
    features: Input,
    labels: Input,
}

/// A batch on the host.
#[derive(Debug, Default)]
pub(super) struct HostBatch {
    pub features: Vec<f32>,
    pub labels: Vec<f32>,
}

impl Dims {
    /// # Errors
    /// [`TrainError::Dataset`] for dimensions that no sample can have.
    pub fn of(data: &(impl Dataset + ?Sized)) -> Result<Self> {
        data::check_dims("features", data.feature_dims())?;
        data::check_dims("labels", data.label_dims())?;
        Ok(Self {
            features: data.feature_dims().to_vec(),
            labels: data.label_dims().to_vec(),
        })
    }

    /// # Errors
    /// [`TrainError::Dataset`] unless `data` has samples of these dimensions, and at least one.
    pub fn check(&self, data: &(impl Dataset + ?Sized)) -> Result<()> {
        let refuse = |detail| Err(TrainError::Dataset { detail }.into());
        if data.is_empty() {
            return refuse("there are no samples".to_owned());
        }
        let sides = [
            ("features", &self.features, data.feature_dims()),
            ("labels", &self.labels, data.label_dims()),
        ];
        for (what, wanted, found) in sides {
            if wanted != found {
                return refuse(format!("{what} are {found:?}, the model's {wanted:?}"));
            }
        }
        Ok(())
    }

    /// The inputs of a batch.
    pub fn batch<'g>(
        &self,
        call: Call,
        g: Builder<'g>,
        samples: usize,
    ) -> Result<(Batch<'g>, BatchInputs)> {
        let input = |name: &str, dims: &[usize]| {
            let dims = [dims, &[samples]].concat();
            g.input(name, DType::F32, &dims[..]).moved_to(call.at)
        };
        let (features, features_in) = input("features", &self.features)?;
        let (labels, labels_in) = input("labels", &self.labels)?;
        let batch = Batch {
            features,
            labels,
            samples,
        };
        let inputs = BatchInputs {
            features: features_in,
            labels: labels_in,
        };
        Ok((batch, inputs))
    }

    /// Fetches samples. What a data set does not write is zero, whatever batch came before.
    ///
    /// # Errors
    /// [`TrainError::Sample`].
    pub fn fetch(
        &self,
        data: &(impl Dataset + ?Sized),
        samples: impl ExactSizeIterator<Item = usize>,
        into: &mut HostBatch,
    ) -> Result<()> {
        let (per_features, per_labels) = (data::size(&self.features), data::size(&self.labels));
        for (values, per_sample) in [
            (&mut into.features, per_features),
            (&mut into.labels, per_labels),
        ] {
            values.clear();
            values.resize(samples.len() * per_sample, 0.0);
        }
        let features = into.features.chunks_exact_mut(per_features);
        let labels = into.labels.chunks_exact_mut(per_labels);
        for ((index, features), labels) in samples.zip(features).zip(labels) {
            data.sample(index, features, labels)
                .map_err(|error| TrainError::Sample {
                    index,
                    detail: error.to_string(),
                })?;
        }
        Ok(())
    }
}

impl BatchInputs {
    /// Sets what the plan needs: a forward alone needs no labels.
    pub fn set(&self, plan: &mut Plan, batch: &HostBatch) -> Result<()> {
        for (input, values) in [
            (&self.features, &batch.features),
            (&self.labels, &batch.labels),
        ] {
            if plan.needs(input)? {
                plan.set_f32(input, values)?;
            }
        }
        Ok(())
    }
}

/// Checks that a model's outputs have the samples in their last dimension.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape).
pub(super) fn check_outputs(call: Call, outputs: Tensor<'_>, samples: usize) -> Result<()> {
    let ne = outputs.shape().ne();
    let last = ne.iter().rfind(|&&n| n != 1).copied().unwrap_or(1);
    // Behind every shape there is a dimension of 1.
    if samples == 1 || last == samples {
        return Ok(());
    }
    Err(call.shape(format!(
        "Forward::outputs is {ne:?} for a batch of {samples} samples: the last dimension must be the samples"
    )))
}
