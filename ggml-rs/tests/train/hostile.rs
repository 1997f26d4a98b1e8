//! What careless and hostile callers do: an error says so, or nothing comes of it.

use std::cell::Cell;

use ggml_rs::train::{
    Arrays, Dataset, Decay, EarlyStop, Every, Fit, Schedule, Task, TrainError, TrainOptions,
    Trainer,
};
use ggml_rs::{Error, Result};

use crate::subject::{
    INPUTS, OUTPUTS, bits, cpu, data, descent, network, odd, refused, trainer, weights,
};

#[test]
fn classes_beyond_memory_are_an_error() {
    for classes in [1 << 45, 1 << 62, usize::MAX] {
        let error = Arrays::classes(&[1], vec![0.0], classes, &[0]).unwrap_err();
        assert!(matches!(error, Error::Alloc { .. }), "{error}");
    }
}

#[test]
fn arrays_give_no_sample_that_they_do_not_have() {
    let data = data(4, 1);
    let sample = |index, features: usize, labels: usize| {
        let (mut features, mut labels) = (vec![0.0; features], vec![0.0; labels]);
        let sample = data.sample(index, &mut features, &mut labels);
        sample.map_err(|error| error.to_string())
    };
    sample(3, INPUTS, OUTPUTS).unwrap();
    assert_eq!(
        sample(4, INPUTS, OUTPUTS).unwrap_err(),
        "there are 4 samples"
    );
    let text = sample(0, INPUTS + 1, OUTPUTS).unwrap_err();
    assert_eq!(text, "6 features, and room for 7");
    let text = sample(0, INPUTS, 0).unwrap_err();
    assert_eq!(text, "3 labels, and room for 0");
}

/// Whose order would not fit in memory.
#[test]
fn a_data_set_without_end_is_an_error() {
    let (device, backend) = cpu();
    let params = weights(device, 5);
    for len in [1 << 45, 1 << 62, usize::MAX] {
        let endless = odd(
            data(1, 1),
            || len,
            |data, _, features, labels| data.sample(0, features, labels),
        );
        let options = TrainOptions::default();
        let trainer = Trainer::new(&backend, endless, &params, options, network(&params));
        let error = trainer.map(drop).unwrap_err();
        assert!(matches!(error, Error::Alloc { .. }), "{error}");
    }
}

/// The number of samples is taken once.
#[test]
fn a_data_set_may_grow() -> Result<()> {
    let (device, mut backend) = cpu();
    let len = Cell::new(20);
    let growing = odd(data(64, 1), || len.get(), Arrays::sample);
    let options = TrainOptions {
        batch: 8,
        ..TrainOptions::default()
    };
    let mut trainer = trainer(&backend, growing, &weights(device, 5), options);
    for epoch in 1..=3 {
        while trainer.step(&mut backend)?.is_some() {}
        assert_eq!(trainer.progress().samples, 20);
        len.set(20 + 7 * epoch);
        trainer.end_epoch();
    }
    Ok(())
}

/// A data set that writes no zeros: those of the sample before would be labels of this one.
#[test]
fn what_a_data_set_does_not_write_is_zero() -> Result<()> {
    let (device, mut backend) = cpu();
    let classes: Vec<_> = (0..24).map(|sample| sample % OUTPUTS).collect();
    let features = crate::common::values(24 * INPUTS, 3);
    let whole = Arrays::classes(&[INPUTS], features, OUTPUTS, &classes)?;
    let sparse = odd(
        whole.clone(),
        || 24,
        |data, index, features, labels| {
            let mut unused = [0.0; OUTPUTS];
            data.sample(index, features, &mut unused)?;
            labels[classes[index]] = 1.0;
            Ok(())
        },
    );
    let options = TrainOptions {
        batch: 5,
        ..TrainOptions::default()
    };
    let (dense, thin) = (weights(device, 5), weights(device, 5));
    let mut expected = trainer(&backend, &whole, &dense, options);
    let mut found = trainer(&backend, &sparse, &thin, options);
    assert_eq!(
        found.evaluate(&mut backend, &sparse, Task::Classify)?,
        expected.evaluate(&mut backend, &whole, Task::Classify)?
    );
    expected.fit(&mut backend, Fit::epochs(2))?;
    found.fit(&mut backend, Fit::epochs(2))?;
    assert!(bits(&thin) == bits(&dense));
    Ok(())
}

/// The first of three NaNs is no answer, and not the right one for a third of all samples.
#[test]
fn an_answer_that_is_no_number_is_not_right() -> Result<()> {
    let nan = [f32::NAN; 3];
    let first = [1.0, 0.0, 0.0];
    for (outputs, labels) in [
        (nan, first),
        ([2.0, 1.0, f32::NAN], first),
        (first, nan),
        (nan, nan),
    ] {
        assert_eq!(Task::Classify.right(&outputs, &labels), Some(false));
    }
    let (device, mut backend) = cpu();
    let classes: Vec<_> = (0..24).map(|sample| sample % OUTPUTS).collect();
    let features = crate::common::values(24 * INPUTS, 3);
    let data = Arrays::classes(&[INPUTS], features, OUTPUTS, &classes)?;
    let params = weights(device, 5);
    let mut trainer = trainer(&backend, &data, &params, TrainOptions::default());
    let w2 = params.get("w2")?;
    w2.set_f32(&vec![f32::NAN; w2.shape().elements()])?;
    let found = trainer.evaluate(&mut backend, &data, Task::Classify)?;
    assert!(found.loss.value.is_nan());
    assert_eq!(found.accuracy.unwrap().hits, 0);
    Ok(())
}

#[test]
fn a_schedule_that_no_trainer_takes_does_not_panic() {
    let decays = [
        Decay::Step {
            every: 0,
            factor: 0.5,
        },
        Decay::Linear {
            steps: 0,
            floor: 0.5,
        },
        Decay::Cosine {
            steps: 0,
            floor: 0.5,
        },
    ];
    for decay in decays {
        for done in [0, 1, u64::MAX] {
            let factor = Schedule { warmup: 0, decay }.factor(done);
            assert!((0.0..=1.0).contains(&factor), "{decay:?}: {factor}");
        }
    }
}

/// A delta of NaN would stop every run, one below 0 would take a worse epoch for the best.
#[test]
fn deltas_that_make_no_sense_are_refused() {
    let (device, mut backend) = cpu();
    let data = data(8, 1);
    let options = TrainOptions::default();
    let mut trainer = trainer(&backend, &data, &weights(device, 5), options);
    for min_delta in [f64::NAN, -0.5, f64::INFINITY] {
        let early = EarlyStop {
            patience: 1,
            min_delta,
        };
        let fit = Fit::epochs(1)
            .validate(&data, Task::Regress)
            .early_stop(early);
        let error = refused(trainer.fit(&mut backend, fit));
        let field = "early_stop";
        assert!(
            matches!(&error, TrainError::Options { field: of, .. } if *of == field),
            "{error}"
        );
    }
    assert_eq!(trainer.progress().step, 0);
}

/// Not after an epoch's work, or after that of the whole run.
#[test]
fn what_cannot_end_is_refused_before_it_begins() {
    let (device, mut backend) = cpu();
    let data = data(8, 1);
    let options = TrainOptions::default();
    let mut trainer = trainer(&backend, &data, &weights(device, 5), options);
    let other = Arrays::new(&[1], vec![0.0], &[1], vec![0.0]).unwrap();
    let empty = Arrays::new(&[INPUTS], vec![], &[OUTPUTS], vec![]).unwrap();
    for validation in [&other, &empty] {
        let fit = Fit::epochs(1).validate(validation, Task::Regress);
        let error = refused(trainer.fit(&mut backend, fit));
        assert!(matches!(error, TrainError::Dataset { .. }), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    for place in ["no/such/folder.gguf", ""] {
        let place = folder.path().join(place);
        let fit = Fit::epochs(1).checkpoint(&place, Every::Epochs(100));
        let error = refused(trainer.fit(&mut backend, fit));
        assert!(
            matches!(&error, TrainError::Checkpoint { path, .. } if *path == place),
            "{error}"
        );
    }
    assert_eq!(trainer.progress().step, 0);
    // Looking leaves nothing behind.
    let place = folder.path().join("run.gguf");
    let stop = |_| -> std::ops::ControlFlow<()> { panic!("the callback's own") };
    let fit = Fit::epochs(1)
        .checkpoint(&place, Every::Epochs(100))
        .on_event(stop);
    let run = std::panic::AssertUnwindSafe(|| trainer.fit(&mut backend, fit));
    std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_run_without_early_stop_has_no_best_epoch() -> Result<()> {
    let (device, mut backend) = cpu();
    let data = data(8, 1);
    let options = TrainOptions {
        optimizer: descent(0.1),
        ..TrainOptions::default()
    };
    let mut trainer = trainer(&backend, &data, &weights(device, 5), options);
    let early = EarlyStop {
        patience: 9,
        min_delta: 0.0,
    };
    let fit = Fit::epochs(2)
        .validate(&data, Task::Regress)
        .early_stop(early);
    assert!(trainer.fit(&mut backend, fit)?.best.is_some());
    assert_eq!(trainer.fit(&mut backend, Fit::epochs(3))?.best, None);
    Ok(())
}
