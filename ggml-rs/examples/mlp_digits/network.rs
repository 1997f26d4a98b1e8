//! Two layers: 64 pixels, a hidden layer, ten digits; and how they are trained.

use ggml_rs::train::{Batch, Dataset, Decay, Forward, Optimizer, Schedule, TrainOptions, Trainer};
use ggml_rs::{AdamW, Builder, DType, Device, Executor, Param, Params, Result, Staging, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::digits::{CLASSES, PIXELS};

/// What a run is told. The defaults were chosen by `--validate`, which never sees the digits held out.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Settings {
    /// Width of the hidden layer.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub hidden: usize,
    /// Samples of a step.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub batch: usize,
    /// How often each sample is seen.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub epochs: u64,
    /// AdamW's learning rate after a warm-up over a twentieth of all steps; it falls to 0 along a cosine.
    #[arg(long, value_name = "RATE", default_value_t = 3e-3)]
    pub learning_rate: f32,
    /// AdamW's weight decay.
    #[arg(long, value_name = "PART", default_value_t = 0.05)]
    pub weight_decay: f32,
    /// Of the first weights and the order of samples.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Settings {
    fn options(&self, samples: usize) -> TrainOptions {
        let steps_of_epoch = samples.div_ceil(self.batch.max(1)) as u64;
        let steps = self.epochs.saturating_mul(steps_of_epoch);
        let warmup = steps / 20;
        TrainOptions {
            batch: self.batch,
            optimizer: Optimizer::AdamW(AdamW {
                learning_rate: self.learning_rate,
                weight_decay: self.weight_decay,
                ..AdamW::default()
            }),
            schedule: Schedule {
                warmup,
                decay: Decay::Cosine {
                    steps: (steps - warmup).max(1),
                    floor: 0.0,
                },
            },
            shuffle: Some(self.seed),
            ..TrainOptions::default()
        }
    }

    pub fn trainer<D: Dataset>(
        &self,
        on: &impl Executor,
        data: D,
        weights: &Params,
    ) -> Result<Trainer<D>> {
        let options = self.options(data.len());
        let network = Network::of(weights)?;
        Trainer::new(on, data, weights, options, move |g, batch| {
            network.forward(g, batch)
        })
    }

    /// Uniformly distributed weights with the variance of He et al., Delving Deep into Rectifiers (2015), and biases of zero.
    pub fn weights(&self, device: Device) -> Result<Params> {
        let params = Params::builder()
            .tensor("hidden.weight", DType::F32, [PIXELS, self.hidden])?
            .tensor("hidden.bias", DType::F32, [self.hidden])?
            .tensor("output.weight", DType::F32, [self.hidden, CLASSES])?
            .tensor("output.bias", DType::F32, [CLASSES])?
            .allocate(device)?;
        params.zero()?;
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        for name in ["hidden.weight", "output.weight"] {
            let weight = params.get(name)?;
            let limit = (6.0 / weight.shape().ne()[0] as f32).sqrt();
            let mut draw = || (random.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
            let values = (0..weight.shape().elements()).map(|_| limit * draw());
            weight.set_f32(&values.collect::<Vec<_>>())?;
        }
        Ok(params)
    }
}

/// Its parameters: weight and bias of each layer.
struct Network {
    hidden: [Param; 2],
    output: [Param; 2],
}

impl Network {
    fn of(weights: &Params) -> Result<Self> {
        Ok(Self {
            hidden: [weights.get("hidden.weight")?, weights.get("hidden.bias")?],
            output: [weights.get("output.weight")?, weights.get("output.bias")?],
        })
    }

    fn forward<'g>(&self, g: Builder<'g>, batch: Batch<'g>) -> Result<Forward<'g>> {
        let pixels = batch.features.reshape([PIXELS, batch.samples])?;
        let [weight, bias] = &self.hidden;
        let hidden = product(g.param(weight)?, pixels)?
            .add(g.param(bias)?)?
            .relu()?;
        let [weight, bias] = &self.output;
        let outputs = product(g.param(weight)?, hidden)?.add(g.param(bias)?)?;
        let loss = outputs.cross_entropy_loss(batch.labels)?;
        Ok(Forward { loss, outputs })
    }
}

/// In float on every device: Metal's products go through half otherwise.
fn product<'g>(weight: Tensor<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
    weight.mul_mat(x)?.set_staging(Staging::Float)
}
