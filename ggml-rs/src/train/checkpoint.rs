//! A run on disk, as a GGUF file: weights, moments, how far it is, and what it was told.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::early_stop::Best;
use super::plans::OURS;
use super::{Dataset, Progress, TrainError, Trainer, atomic};
use crate::dtype::DType::{self, F32};
use crate::error::{Error, Result};
use crate::files::gguf::{Builder, Gguf, Metadata, Value};
use crate::files::with_path;
use crate::params::Param;
use crate::shape::Shape;

/// Of the keys and names below.
const VERSION: u32 = 1;

impl<D: Dataset> Trainer<D> {
    /// Writes a checkpoint: whenever the process is killed, `path` holds a whole checkpoint, the old one or the new one. A process
    /// that is killed meanwhile leaves a file `.NAME.PROCESS-NUMBER.partial` beside it, which may be deleted.
    ///
    /// Where `path` is a link, the file that it leads to is replaced. What is no file, such as a device, is not.
    ///
    /// The weights lie in it under their own names, so [`Gguf::load_into`] reads them alone.
    ///
    /// # Errors
    /// [`TrainError::Torn`]; [`TrainError::Checkpoint`] when the file cannot be written: the old one is as it was then.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let written = atomic::write(path, |file| self.write_to(file).map_err(io::Error::other));
        written.map_err(|error| broken(path, error.to_string()))
    }

    /// Writes the bytes of a checkpoint. Nothing here is atomic.
    ///
    /// # Errors
    /// [`TrainError::Torn`]; [`Error::File`] when writing fails.
    pub fn write_to(&self, to: impl Write) -> Result<()> {
        if self.torn {
            return Err(TrainError::Torn.into());
        }
        let mut builder = self.describe()?;
        for param in self.kept() {
            builder = builder.tensor(param.name(), F32, param.shape())?;
        }
        for weight in self.best.iter().flat_map(|_| self.trained.weights.iter()) {
            builder = builder.tensor(&best_name(&weight), F32, weight.shape())?;
        }
        let mut writer = builder.begin(to)?;
        for param in self.kept() {
            writer.write(param.name(), &param.read_bytes()?)?;
        }
        if let Some(best) = &self.best {
            for (weight, values) in self.trained.weights.iter().zip(&best.weights) {
                writer.write_f32(&best_name(&weight), values)?;
            }
        }
        writer.finish().map(drop)
    }

    /// Goes on from a checkpoint: what is trained from here on is the same bit for bit as if the run had never stopped, on the same
    /// device with as many threads.
    ///
    /// # Errors
    /// [`TrainError::Mismatch`] for a checkpoint of a run with other options or parameters, or samples of another number or other
    /// dimensions (what is in them is not looked at); [`TrainError::Checkpoint`] and [`Error::File`] for a file that is not one. The
    /// trainer is as it was then.
    pub fn restore(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut file = Gguf::open(path)?;
        check_kind(file.metadata(), path)?;
        // Everything is read before anything changes.
        let read_keys = |file: &Gguf<File>| {
            self.check_same(file.metadata())?;
            let progress = self.read_progress(file.metadata(), path)?;
            let loss_sum = file.metadata().get("train.loss_sum")?;
            self.check_tensors(file)?;
            Ok((progress, loss_sum))
        };
        let (progress, loss_sum) = read_keys(&file).map_err(|error| with_path(error, path))?;
        let kept = self.kept();
        let kept = kept
            .iter()
            .map(|param| read(&mut file, param.name(), param));
        let kept = kept.collect::<Result<Vec<_>>>()?;
        let best = self.read_best(&mut file, path);
        let best = best.map_err(|error| with_path(error, path))?;
        // Until all of it is written.
        self.torn = true;
        for (param, values) in self.kept().iter().zip(&kept) {
            param.set_f32(values)?;
        }
        self.enter(progress);
        self.loss_sum = loss_sum;
        self.best = best;
        self.torn = false;
        Ok(())
    }

    /// The parameters of which a run consists, in the order of the file.
    fn kept(&self) -> Vec<Param> {
        let moments = self.trained.moments.iter().flatten();
        let all = [&self.trained.weights].into_iter().chain(moments);
        all.flat_map(|params| params.iter()).collect()
    }

    fn describe(&self) -> Result<Builder> {
        let Progress {
            step,
            epoch,
            samples,
        } = self.progress;
        let mut builder = Builder::new()
            .set("general.architecture", "ggml-rs.train")?
            .set("train.version", VERSION)?
            .set("train.step", step)?
            .set("train.epoch", epoch)?
            .set("train.samples", samples as u64)?
            .set("train.loss_sum", self.loss_sum)?;
        for (what, value) in self.identity() {
            builder = builder.set(&option_key(what), value)?;
        }
        if let Some(best) = &self.best {
            builder = builder
                .set("train.best.loss", best.loss)?
                .set("train.best.epoch", best.epoch)?
                .set("train.best.waited", best.waited)?;
        }
        Ok(builder)
    }

    /// What makes this run another than one that differs in it.
    fn identity(&self) -> Vec<(&'static str, String)> {
        let mut identity = self.options.fingerprint();
        identity.push(("samples", self.order.len().to_string()));
        identity.push(("features", format!("{:?}", self.dims.features)));
        identity.push(("labels", format!("{:?}", self.dims.labels)));
        identity
    }

    /// # Errors
    /// [`TrainError::Mismatch`]; [`Error::File`] for a key that is not there.
    fn check_same(&self, metadata: &Metadata) -> Result<()> {
        let version: u32 = metadata.get("train.version")?;
        same("version", version.to_string(), VERSION.to_string())?;
        for (what, here) in self.identity() {
            let saved: &str = metadata.get(&option_key(what))?;
            same(what, saved.to_owned(), here)?;
        }
        Ok(())
    }

    /// # Errors
    /// [`TrainError::Mismatch`] for a tensor that no run of this trainer writes: a parameter that is not trained here.
    fn check_tensors(&self, file: &Gguf<File>) -> Result<()> {
        let kept = self.kept();
        let mut names: HashSet<_> = kept.iter().map(|param| param.name().to_owned()).collect();
        if best_loss(file.metadata())?.is_some() {
            let weights = self.trained.weights.iter();
            names.extend(weights.map(|weight| best_name(&weight)));
        }
        let mut tensors = file.tensors().iter();
        match tensors.find(|tensor| !names.contains(tensor.name())) {
            Some(other) => same(
                &format!("`{}` of", other.name()),
                described(other.dtype(), other.shape()),
                "none".to_owned(),
            ),
            None => Ok(()),
        }
    }

    fn read_progress(&self, metadata: &Metadata, path: &Path) -> Result<Progress> {
        let samples: u64 = metadata.get("train.samples")?;
        let (len, step) = (
            self.order.len() as u64,
            self.options.samples_of_step() as u64,
        );
        // Steps begin at multiples of their samples, and the last ends with the data.
        if samples > len || (samples != len && !samples.is_multiple_of(step)) {
            let detail = format!("{samples} samples of {len} are not whole steps of {step}");
            return Err(broken(path, detail));
        }
        Ok(Progress {
            step: count(metadata, "train.step", path)?,
            epoch: count(metadata, "train.epoch", path)?,
            samples: samples as usize,
        })
    }

    fn read_best(&self, file: &mut Gguf<File>, path: &Path) -> Result<Option<Best>> {
        let metadata = file.metadata();
        let Some(loss) = best_loss(metadata)? else {
            return Ok(None);
        };
        if loss.is_nan() {
            return Err(broken(path, format!("a best loss of {loss}")));
        }
        let epoch = count(metadata, "train.best.epoch", path)?;
        let waited = count(metadata, "train.best.waited", path)?;
        let weights = self.trained.weights.iter();
        let weights = weights.map(|weight| read(file, &best_name(&weight), &weight));
        Ok(Some(Best {
            loss,
            epoch,
            waited,
            weights: weights.collect::<Result<_>>()?,
        }))
    }
}

/// # Errors
/// [`TrainError::Checkpoint`] for a file that no trainer wrote.
fn check_kind(metadata: &Metadata, path: &Path) -> Result<()> {
    const KEY: &str = "train.version";
    match metadata.find::<&Value>(KEY) {
        Ok(Some(_)) => Ok(()),
        _ => Err(broken(
            path,
            format!(
                "a GGUF file, but not a checkpoint: it has no key `{KEY}`, which Trainer::save writes (Gguf::load_into reads weights alone)"
            ),
        )),
    }
}

fn best_loss(metadata: &Metadata) -> Result<Option<f64>> {
    metadata.find("train.best.loss")
}

/// Tries whether a checkpoint can be written there, and leaves nothing behind.
///
/// # Errors
/// [`TrainError::Checkpoint`].
pub(super) fn check_place(path: &Path) -> Result<()> {
    atomic::check(path).map_err(|error| broken(path, error.to_string()))
}

/// What is counted up from. No run comes near the end of the numbers, so a file that is there is not one of a run.
fn count(metadata: &Metadata, key: &str, path: &Path) -> Result<u64> {
    let count: u64 = metadata.get(key)?;
    match count > u64::MAX / 2 {
        true => Err(broken(path, format!("`{key}` is {count}"))),
        false => Ok(count),
    }
}

fn broken(path: &Path, detail: String) -> Error {
    let path = path.to_owned();
    TrainError::Checkpoint { path, detail }.into()
}

fn option_key(what: &str) -> String {
    format!("train.options.{what}")
}

fn best_name(weight: &Param) -> String {
    format!("{OURS}b.{}", weight.name())
}

fn same(what: &str, saved: String, here: String) -> Result<()> {
    if saved == here {
        return Ok(());
    }
    let what = what.to_owned();
    Err(TrainError::Mismatch { what, saved, here }.into())
}

fn described(dtype: DType, shape: Shape) -> String {
    format!("{dtype} {shape}")
}

/// The values of a tensor that must be as `like`.
fn read(file: &mut Gguf<File>, name: &str, like: &Param) -> Result<Vec<f32>> {
    let info = file.tensor(name)?;
    same(
        &format!("`{name}` of"),
        described(info.dtype(), info.shape()),
        described(like.dtype(), like.shape()),
    )?;
    file.read_f32(name)
}
