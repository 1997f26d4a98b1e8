//! What the tests train: a small network on made-up data, and data sets that misbehave.

use ggml_rs::DType::F32;
use ggml_rs::train::{
    Arrays, Batch, Dataset, Forward, Optimizer, SampleError, Sgd, TrainError, TrainOptions, Trainer,
};
use ggml_rs::{Backend, Builder, Device, Error, Params, Result};

use crate::common;

pub const INPUTS: usize = 6;
pub const HIDDEN: usize = 10;
pub const OUTPUTS: usize = 3;

/// Samples whose labels a smooth function makes of their features.
pub fn data(samples: usize, seed: u64) -> Arrays {
    let features = common::values(samples * INPUTS, seed);
    let label = |sample: &[f32], output: usize| {
        let sum: f32 = sample
            .iter()
            .enumerate()
            .map(|(i, x)| x * ((i + output) as f32).sin())
            .sum();
        sum.tanh()
    };
    let labels = features
        .chunks_exact(INPUTS)
        .flat_map(|sample| (0..OUTPUTS).map(move |output| label(sample, output)))
        .collect();
    Arrays::new(&[INPUTS], features, &[OUTPUTS], labels).unwrap()
}

/// Weights drawn with a seed.
pub fn weights(device: Device, seed: u64) -> Params {
    let params = Params::builder()
        .tensor("w1", F32, [INPUTS, HIDDEN])
        .and_then(|b| b.tensor("b1", F32, [HIDDEN]))
        .and_then(|b| b.tensor("w2", F32, [HIDDEN, OUTPUTS]))
        .and_then(|b| b.allocate(device))
        .unwrap();
    for (i, param) in params.iter().enumerate() {
        let values = common::values(param.shape().elements(), seed + i as u64);
        let values: Vec<f32> = values.iter().map(|v| v * 0.5).collect();
        param.set_f32(&values).unwrap();
    }
    params
}

/// The network, with the mean square of its errors. Every node of it runs on every device.
pub fn network(
    weights: &Params,
) -> impl for<'g> Fn(Builder<'g>, Batch<'g>) -> Result<Forward<'g>> + Send + 'static {
    let [w1, b1, w2] = ["w1", "b1", "w2"].map(|name| weights.get(name).unwrap());
    move |g, batch| {
        let hidden = g
            .param(&w1)?
            .mul_mat(batch.features)?
            .add(g.param(&b1)?)?
            .relu()?;
        let outputs = g.param(&w2)?.mul_mat(hidden)?;
        let error = outputs.sub(batch.labels)?;
        let loss = error.mul(error)?.mean()?;
        Ok(Forward { loss, outputs })
    }
}

pub fn trainer<D: Dataset>(
    backend: &Backend,
    data: D,
    weights: &Params,
    options: TrainOptions,
) -> Trainer<D> {
    Trainer::new(backend, data, weights, options, network(weights)).unwrap()
}

pub fn descent(learning_rate: f32) -> Optimizer {
    Optimizer::Sgd(Sgd {
        learning_rate,
        weight_decay: 0.0,
    })
}

/// A backend of one thread, for which this work is enough.
pub fn open(device: Device) -> Backend {
    let mut backend = device.open().unwrap();
    backend.set_threads(1).unwrap();
    backend
}

pub fn cpu() -> (Device, Backend) {
    let cpu = Device::cpu().unwrap();
    (cpu, open(cpu))
}

/// Every bit of the parameters.
pub fn bits(params: &Params) -> Vec<u32> {
    let values = params.iter().flat_map(|param| param.read_f32().unwrap());
    values.map(f32::to_bits).collect()
}

/// Why a trainer refused.
#[track_caller]
pub fn refused<T>(result: Result<T>) -> TrainError {
    match result.map(drop) {
        Err(Error::Train(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// A data set that does other things than its arrays.
pub struct Odd<L, S> {
    data: Arrays,
    len: L,
    sample: S,
}

pub type Sampled = std::result::Result<(), SampleError>;

pub fn odd<L, S>(data: Arrays, len: L, sample: S) -> Odd<L, S>
where
    L: Fn() -> usize,
    S: Fn(&Arrays, usize, &mut [f32], &mut [f32]) -> Sampled,
{
    Odd { data, len, sample }
}

impl<L, S> Dataset for Odd<L, S>
where
    L: Fn() -> usize,
    S: Fn(&Arrays, usize, &mut [f32], &mut [f32]) -> Sampled,
{
    fn len(&self) -> usize {
        (self.len)()
    }

    fn feature_dims(&self) -> &[usize] {
        self.data.feature_dims()
    }

    fn label_dims(&self) -> &[usize] {
        self.data.label_dims()
    }

    fn sample(&self, index: usize, features: &mut [f32], labels: &mut [f32]) -> Sampled {
        (self.sample)(&self.data, index, features, labels)
    }
}
