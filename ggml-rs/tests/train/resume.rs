//! Runs that end, and go on in another process: the same bits as without.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ggml_rs::files::gguf::{Builder, Gguf, Value};
use ggml_rs::train::{
    Clip, Decay, EarlyStop, Event, Every, Finish, Fit, Optimizer, Schedule, Stop, Task, TrainError,
    TrainOptions, Trainer,
};
use ggml_rs::{AdamW, DType, Device, Error, Params};
use tempfile::TempDir;

use crate::common;
use crate::subject::{bits, cpu, data, descent, open, trainer, weights};

/// Everything that has a state: the order, moments, a schedule, an epoch that ends with a part of a step.
fn options(optimizer: Optimizer) -> TrainOptions {
    TrainOptions {
        batch: 4,
        accumulate: 2,
        optimizer,
        schedule: Schedule {
            warmup: 3,
            decay: Decay::Cosine {
                steps: 12,
                floor: 0.1,
            },
        },
        clip: Some(Clip::Norm(0.5)),
        shuffle: Some(9),
    }
}

const EPOCHS: u64 = 3;
const SAMPLES: usize = 21;
/// Of 8, 8 and 5 samples.
const STEPS: u64 = 9;

/// Trains to the end, or to a step, with a checkpoint after every step. Returns the end, and every event.
fn run(
    device: Device,
    params: &Params,
    optimizer: Optimizer,
    path: &Path,
    resume: bool,
    until: impl Fn(&Event) -> bool,
) -> (Finish, Vec<Event>) {
    let mut backend = open(device);
    let (train, held_out) = (data(SAMPLES, 1), data(10, 2));
    let mut trainer = trainer(&backend, &train, params, options(optimizer));
    if resume {
        trainer.restore(path).unwrap();
    }
    let mut events = Vec::new();
    let rule = EarlyStop {
        patience: 100,
        min_delta: 1e-3,
    };
    let fit = Fit::epochs(EPOCHS)
        .validate(&held_out, Task::Regress)
        .early_stop(rule)
        .checkpoint(path, Every::Steps(1))
        .on_event(|event| {
            events.push(event);
            match until(&event) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    (trainer.fit(&mut backend, fit).unwrap(), events)
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let adamw = Optimizer::AdamW(AdamW {
        learning_rate: 0.02,
        weight_decay: 0.1,
        ..AdamW::default()
    });
    for device in common::devices() {
        for optimizer in [adamw, descent(0.3)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("run.gguf");
            let whole = weights(device, 5);
            let (end, events) = run(device, &whole, optimizer, &path, false, |_| false);
            assert_eq!(end.stop, Stop::Epochs);
            // After every event: in an epoch, at its last step, and once it is closed.
            for stop in 1..events.len() {
                let params = weights(device, 5);
                let last = events[stop - 1];
                let (end, before) = run(device, &params, optimizer, &path, false, |event| {
                    *event == last
                });
                assert_eq!((end.stop, &before[..]), (Stop::Callback, &events[..stop]));
                // Whatever the weights were: the file has them.
                let params = weights(device, 77);
                let (resumed, after) = run(device, &params, optimizer, &path, true, |_| false);
                assert_eq!(after, events[stop..], "{} after {last:?}", device.name());
                assert!(
                    bits(&params) == bits(&whole),
                    "{} after {last:?}",
                    device.name()
                );
                assert_eq!(resumed.stop, Stop::Epochs);
            }
            let steps = events
                .iter()
                .filter(|event| matches!(event, Event::Step(_)));
            assert_eq!(steps.count() as u64, STEPS);
        }
    }
}

/// A trainer in the middle of its second epoch.
fn begun<'a>(
    params: &Params,
    data: &'a ggml_rs::train::Arrays,
    options: TrainOptions,
) -> Trainer<&'a ggml_rs::train::Arrays> {
    let (_, mut backend) = cpu();
    let mut trainer = trainer(&backend, data, params, options);
    for _ in 0..5 {
        if trainer.step(&mut backend).unwrap().is_none() {
            trainer.end_epoch();
        }
    }
    trainer
}

/// A checkpoint of it, in a folder of its own, and its weights.
fn saved(options: TrainOptions) -> (TempDir, PathBuf, Params) {
    let (device, _) = cpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.gguf");
    let params = weights(device, 5);
    let data = data(SAMPLES, 1);
    begun(&params, &data, options).save(&path).unwrap();
    (folder, path, params)
}

/// What is wrong with resuming `path`, which must leave the trainer as it was.
fn refused(
    params: &Params,
    samples: usize,
    options: TrainOptions,
    path: &Path,
) -> Result<(), Error> {
    let data = data(samples, 1);
    let mut trainer = begun(params, &data, options);
    let (before, at) = (bits(params), trainer.progress());
    let outcome = trainer.restore(path);
    if outcome.is_err() {
        assert!(before == bits(params) && at == trainer.progress());
        let (_, mut backend) = cpu();
        trainer.step(&mut backend).unwrap();
    }
    outcome
}

#[test]
fn another_run_is_not_resumed() {
    let (device, _) = cpu();
    let same = options(descent(0.1));
    let (_folder, path, _) = saved(same);
    let others = [
        ("batch", SAMPLES, TrainOptions { batch: 3, ..same }),
        (
            "accumulate",
            SAMPLES,
            TrainOptions {
                accumulate: 1,
                ..same
            },
        ),
        (
            "optimizer",
            SAMPLES,
            TrainOptions {
                optimizer: descent(0.2),
                ..same
            },
        ),
        (
            "schedule",
            SAMPLES,
            TrainOptions {
                schedule: Schedule::default(),
                ..same
            },
        ),
        ("clip", SAMPLES, TrainOptions { clip: None, ..same }),
        (
            "shuffle",
            SAMPLES,
            TrainOptions {
                shuffle: Some(8),
                ..same
            },
        ),
        ("samples", SAMPLES + 1, same),
    ];
    for (field, samples, options) in others {
        let Err(Error::Train(error)) = refused(&weights(device, 6), samples, options, &path) else {
            panic!("{field}");
        };
        assert!(
            matches!(&*error, TrainError::Mismatch { what, .. } if what == field),
            "{error}"
        );
    }
    refused(&weights(device, 6), SAMPLES, same, &path).unwrap();

    // The same names, and another shape.
    let file = Gguf::open(&path).unwrap();
    let mut writer = Builder::new()
        .set_all(file.metadata())
        .unwrap()
        .tensor("w1", DType::F32, [2])
        .unwrap()
        .begin(Vec::new())
        .unwrap();
    writer.write_f32("w1", &[0.0; 2]).unwrap();
    fs::write(&path, writer.finish().unwrap()).unwrap();
    let error = refused(&weights(device, 6), SAMPLES, same, &path)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`w1` of f32 [2, 1, 1, 1], this trainer f32 [6, 10, 1, 1]"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_checkpoint_changes_nothing() {
    let (device, _) = cpu();
    let options = options(descent(0.1));
    let (folder, path, _) = saved(options);
    let whole = fs::read(&path).unwrap();
    for cut in [0, 3, 100, whole.len() / 2, whole.len() - 40] {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = refused(&weights(device, 6), SAMPLES, options, &path).unwrap_err();
        assert!(matches!(error, Error::File(_)), "{error}");
    }
    fs::write(&path, &whole).unwrap();
    refused(&weights(device, 6), SAMPLES, options, &path).unwrap();
    let nowhere = folder.path().join("nothing/here.gguf");
    assert!(refused(&weights(device, 6), SAMPLES, options, &nowhere).is_err());
    let data = data(SAMPLES, 1);
    let trainer = begun(&weights(device, 5), &data, options);
    let Err(Error::Train(error)) = trainer.save(&nowhere) else {
        panic!("there is no such folder");
    };
    assert!(matches!(&*error, TrainError::Checkpoint { path, .. } if *path == nowhere));
}

/// The weights of a checkpoint are those of a model file.
#[test]
fn a_checkpoint_is_a_model_file() {
    let (device, _) = cpu();
    let (_folder, path, params) = saved(options(descent(0.1)));
    let other = weights(device, 6);
    assert!(bits(&other) != bits(&params));
    Gguf::open(&path).unwrap().load_into(&other).unwrap();
    assert!(bits(&other) == bits(&params));
}

/// Writes a checkpoint again, with other values of some keys and perhaps a tensor more.
fn rewrite(path: &Path, keys: &[(&str, Value)], tensor: Option<&str>) {
    let mut file = Gguf::open(path).unwrap();
    let mut builder = Builder::new();
    for (key, value) in file.metadata().iter() {
        let other = keys.iter().find(|(other, _)| *other == key);
        let value = other.map_or(value, |(_, value)| value);
        builder = builder.set(key, value.clone()).unwrap();
    }
    let names: Vec<_> = file
        .tensors()
        .iter()
        .map(|info| info.name().to_owned())
        .collect();
    for info in file.tensors() {
        builder = builder
            .tensor(info.name(), info.dtype(), info.shape())
            .unwrap();
    }
    if let Some(name) = tensor {
        builder = builder.tensor(name, DType::F32, [3]).unwrap();
    }
    let mut writer = builder.begin(Vec::new()).unwrap();
    for name in &names {
        writer.write(name, &file.read_bytes(name).unwrap()).unwrap();
    }
    if let Some(name) = tensor {
        writer.write_f32(name, &[1.0; 3]).unwrap();
    }
    fs::write(path, writer.finish().unwrap()).unwrap();
}

/// A model that has one parameter more would go on without it.
#[test]
fn a_larger_model_is_not_resumed() {
    let (device, _) = cpu();
    let options = options(descent(0.1));
    let (folder, path, _) = saved(options);
    rewrite(&path, &[], None);
    refused(&weights(device, 6), SAMPLES, options, &path).unwrap();
    for name in ["b2", "@b.w1"] {
        let larger = folder.path().join("larger.gguf");
        fs::copy(&path, &larger).unwrap();
        rewrite(&larger, &[], Some(name));
        let error = refused(&weights(device, 6), SAMPLES, options, &larger).unwrap_err();
        let text = error.to_string();
        assert!(
            text.ends_with(&format!(
                "the checkpoint has `{name}` of f32 [3, 1, 1, 1], this trainer none"
            )),
            "{text}"
        );
    }
}

/// What is counted up from there would overflow.
#[test]
fn counts_that_no_run_reaches_are_refused() {
    let (device, mut backend) = cpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.gguf");
    let (train, options) = (data(SAMPLES, 1), options(descent(0.1)));
    let mut best = begun(&weights(device, 5), &train, options);
    let early = EarlyStop {
        patience: 9,
        min_delta: 0.0,
    };
    let fit = Fit::epochs(2)
        .validate(&train, Task::Regress)
        .early_stop(early);
    best.fit(&mut backend, fit).unwrap();
    best.save(&path).unwrap();
    refused(&weights(device, 6), SAMPLES, options, &path).unwrap();
    let whole = fs::read(&path).unwrap();
    for (key, value) in [
        ("train.step", Value::U64(u64::MAX)),
        ("train.epoch", Value::U64(u64::MAX)),
        ("train.best.epoch", Value::U64(u64::MAX)),
        ("train.best.waited", Value::U64(u64::MAX)),
        ("train.best.loss", Value::F64(f64::NAN)),
    ] {
        fs::write(&path, &whole).unwrap();
        rewrite(&path, &[(key, value)], None);
        let error = refused(&weights(device, 6), SAMPLES, options, &path).unwrap_err();
        assert!(
            matches!(&error, Error::Train(error) if matches!(**error, TrainError::Checkpoint { .. })),
            "{key}: {error}"
        );
    }
}

/// As many batches as there are: more than a u64 of samples.
#[test]
fn a_step_may_be_a_whole_epoch() {
    let (device, _) = cpu();
    let options = TrainOptions {
        accumulate: usize::MAX,
        ..options(descent(0.1))
    };
    let (_folder, path, params) = saved(options);
    let other = weights(device, 6);
    refused(&other, SAMPLES, options, &path).unwrap();
    assert!(bits(&other) == bits(&params));
}
