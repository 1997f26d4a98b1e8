//! Training: data, epochs, schedules, evaluation, checkpoints.
//!
//! A [`Trainer`] has a model (a closure that makes outputs and a loss of a batch), parameters, and data. [`Trainer::fit`] trains;
//! [`Trainer::step`] is one step of it, for loops of one's own.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use ggml_rs::train::{Arrays, Event, Fit, Forward, Optimizer, Task, TrainOptions, Trainer};
//! use ggml_rs::{AdamW, DType, Device, Params};
//!
//! // y = 2 x - 1, in 64 samples.
//! let x: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
//! let y = x.iter().map(|x| 2.0 * x - 1.0).collect();
//! let data = Arrays::new(&[1], x, &[1], y)?;
//!
//! let device = Device::cpu()?;
//! let weights = Params::builder()
//!     .tensor("slope", DType::F32, [1, 1])?
//!     .tensor("offset", DType::F32, [1])?
//!     .allocate(device)?;
//! weights.zero()?;
//! let (slope, offset) = (weights.get("slope")?, weights.get("offset")?);
//!
//! let mut backend = device.open()?;
//! let options = TrainOptions {
//!     batch: 16,
//!     optimizer: Optimizer::AdamW(AdamW { learning_rate: 0.05, ..AdamW::default() }),
//!     ..TrainOptions::default()
//! };
//! let mut trainer = Trainer::new(&backend, &data, &weights, options, move |g, batch| {
//!     let outputs = g.param(&slope)?.mul_mat(batch.features)?.add(g.param(&offset)?)?;
//!     let error = outputs.sub(batch.labels)?;
//!     Ok(Forward { outputs, loss: error.mul(error)?.mean()? })
//! })?;
//!
//! trainer.fit(&mut backend, Fit::epochs(100).on_event(|event| {
//!     if let Event::Epoch(report) = event {
//!         println!("epoch {}: {:.6}", report.epoch, report.loss);
//!     }
//!     ControlFlow::Continue(())
//! }))?;
//! let found = trainer.evaluate(&mut backend, &data, Task::Regress)?;
//! assert!(found.loss.value < 1e-4, "{}", found.loss);
//! # Ok::<(), ggml_rs::Error>(())
//! ```
//!
//! # What is the same again
//! A run is a function of its data, its options (the seed among them), the first weights, the device and, on the CPU, the number of
//! threads. One that was stopped, killed or interrupted by a panic goes on from a checkpoint with the same bits as one that was
//! not.
//!
//! # What a step costs
//! A copy of the gradients stays on the device, and a step is one run more than a graph that does all in one: in between the host
//! looks at the loss and the norm, so that a value that is not finite stops the run before it reaches the weights. Whole
//! batches and the last one of an epoch each have a plan, with memory of its own.
//!
//! # What is left to graphs of one's own
//! Features and labels are F32; ids of tokens, dropout, several inputs and custom optimizers are not here.

mod atomic;
mod checkpoint;
mod clip;
mod data;
mod early_stop;
mod error;
mod fit;
mod metrics;
mod model;
mod options;
mod plans;
mod schedule;
mod shuffle;
mod trainer;

pub use clip::Clip;
pub use data::{Arrays, Dataset, SampleError, stratified_split};
pub use early_stop::EarlyStop;
pub use error::TrainError;
pub use fit::{EpochReport, Event, Every, Finish, Fit, Stop};
pub use metrics::{Evaluation, Mean, Proportion, Task};
pub use model::{Batch, Forward};
pub use options::{Optimizer, Sgd, TrainOptions};
pub use schedule::{Decay, Schedule};
pub use shuffle::shuffled;
pub use trainer::{Progress, StepReport, Trainer};
