//! What a trainer refuses, and what it leaves alone when it stops.

use ggml_rs::DType::{F16, F32};
use ggml_rs::train::{
    Arrays, Clip, EarlyStop, Every, Fit, Forward, Task, TrainError, TrainOptions, Trainer,
};
use ggml_rs::{Error, Params};

use crate::subject::{
    HIDDEN, INPUTS, OUTPUTS, bits, cpu, data, descent, network, refused, trainer, weights,
};

/// Three good batches of four, then one with an infinite feature.
fn spoilt() -> Arrays {
    let good = data(20, 1);
    let (features, labels): (Vec<_>, Vec<_>) = good.samples().unzip();
    let (mut features, labels) = (features.concat(), labels.concat());
    features[13 * INPUTS + 2] = f32::INFINITY;
    Arrays::new(&[INPUTS], features, &[OUTPUTS], labels).unwrap()
}

#[test]
fn a_loss_that_is_not_finite_stops_before_the_weights() {
    let (device, mut backend) = cpu();
    let options = TrainOptions {
        batch: 4,
        shuffle: None,
        clip: Some(Clip::Norm(1.0)),
        ..TrainOptions::default()
    };
    let spoilt = spoilt();
    let params = weights(device, 5);
    let mut stopped = trainer(&backend, &spoilt, &params, options);
    for _ in 0..2 {
        let error = refused(stopped.fit(&mut backend, Fit::epochs(1)));
        let TrainError::NotFinite {
            what,
            value,
            step,
            epoch,
            batch,
            samples,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((what.as_str(), step, epoch, batch), ("loss", &4, &0, &3));
        assert!(
            !value.is_finite() && samples == &[12, 13, 14, 15],
            "{error}"
        );
    }
    assert_eq!(stopped.progress().step, 3);

    let good = weights(device, 5);
    let data = data(20, 1);
    let mut other = trainer(&backend, &data, &good, options);
    for _ in 0..3 {
        other.step(&mut backend).unwrap();
    }
    assert!(
        bits(&params) == bits(&good),
        "the weights of the last good step"
    );
}

/// The loss is 0 while its gradient is 1e25, whose square is no float.
#[test]
fn a_gradient_that_is_not_finite_is_named() {
    let (device, mut backend) = cpu();
    let data = Arrays::new(&[1], vec![1e25; 4], &[1], vec![0.0; 4]).unwrap();
    let builder = Params::builder().tensor("slope", F32, [1, 1]).unwrap();
    let params = builder.allocate(device).unwrap();
    params.zero().unwrap();
    let slope = params.get("slope").unwrap();
    let options = TrainOptions {
        batch: 2,
        ..TrainOptions::default()
    };
    let model = Trainer::new(&backend, &data, &params, options, move |g, batch| {
        let outputs = g.param(&slope)?.mul_mat(batch.features)?;
        let loss = outputs.mean()?;
        Ok(Forward { loss, outputs })
    });
    let error = refused(model.unwrap().step(&mut backend));
    let text = error.to_string();
    assert!(
        text.starts_with("the gradient of `slope` is inf in step 1 (epoch 0, batch 0,"),
        "{text}"
    );
    assert_eq!(bits(&params), [0]);
}

#[test]
fn data_that_does_not_fit_is_refused() {
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let options = TrainOptions::default();
    let empty = Arrays::new(&[INPUTS], vec![], &[OUTPUTS], vec![]).unwrap();
    let error = refused(Trainer::new(
        &backend,
        &empty,
        &params,
        options,
        network(&params),
    ));
    assert_eq!(error.to_string(), "data set: there are no samples");

    let train = data(8, 1);
    let mut trainer = trainer(&backend, &train, &params, options);
    let other = Arrays::new(&[2, 3], vec![0.0; 6], &[OUTPUTS], vec![0.0; 3]).unwrap();
    let error = refused(trainer.evaluate(&mut backend, &other, Task::Regress));
    assert_eq!(
        error.to_string(),
        "data set: features are [2, 3], the model's [6]"
    );
    assert!(
        refused(trainer.predict(&mut backend, &empty))
            .to_string()
            .contains("no samples")
    );

    // A model for other features: the op that does not fit says so, with both shapes.
    let other = Arrays::new(&[5], vec![0.0; 5], &[OUTPUTS], vec![0.0; 3]).unwrap();
    let error = Trainer::new(&backend, &other, &params, options, network(&params)).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, Error::Shape(_))
            && text.contains("[6, 10, 1, 1]")
            && text.contains("[5, 1, 1, 1]"),
        "{text}"
    );
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let (device, backend) = cpu();
    let data = data(8, 1);
    let params = weights(device, 5);
    let options = TrainOptions::default();
    let [w1, b1] = ["w1", "b1"].map(|name| params.get(name).unwrap());

    let of_w1 = w1.clone();
    let part = Trainer::new(&backend, &data, &params, options, move |g, batch| {
        let outputs = g.param(&of_w1)?.mul_mat(batch.features)?;
        let loss = outputs.mul(outputs)?.mean()?;
        Ok(Forward { loss, outputs })
    });
    assert!(matches!(refused(part), TrainError::Unused { param } if param == "b1"));

    let of_w1 = (w1.clone(), b1.clone());
    let frozen = Trainer::new(&backend, &data, &params, options, move |g, batch| {
        let outputs = g
            .weight(&of_w1.0)?
            .mul_mat(batch.features)?
            .add(g.param(&of_w1.1)?)?;
        let loss = outputs.mul(outputs)?.mean()?;
        Ok(Forward { loss, outputs })
    });
    let text = frozen.unwrap_err().to_string();
    assert!(
        text.contains("`w1` both as trainable and as frozen"),
        "{text}"
    );

    let one = Params::builder()
        .tensor("w1", F32, [INPUTS, HIDDEN])
        .unwrap();
    let one = one.allocate(device).unwrap();
    let of_one = one.get("w1").unwrap();
    let sum = move |outputs_of_sample: bool, loss_of_sample: bool| {
        let w1 = of_one.clone();
        Trainer::new(&backend, &data, &one, options, move |g, batch| {
            let hidden = g.param(&w1)?.mul_mat(batch.features)?;
            let loss = hidden.mul(hidden)?;
            Ok(Forward {
                loss: if loss_of_sample {
                    loss.sum_rows()?
                } else {
                    loss.mean()?
                },
                outputs: if outputs_of_sample {
                    hidden
                } else {
                    hidden.mean()?
                },
            })
        })
        .map(drop)
    };
    sum(true, false).unwrap();
    let text = sum(false, false).unwrap_err().to_string();
    assert!(
        text.contains("[1, 1, 1, 1] for a batch of 8 samples"),
        "{text}"
    );
    let text = sum(true, true).unwrap_err().to_string();
    assert!(text.contains("a loss is one element"), "{text}");
}

#[test]
fn parameters_that_cannot_be_trained_are_refused() {
    let (device, backend) = cpu();
    let data = data(8, 1);
    let refuse = |name: &str, dtype| {
        let params = Params::builder()
            .tensor(name, dtype, [INPUTS, OUTPUTS])
            .unwrap();
        let params = params.allocate(device).unwrap();
        let w = params.get(name).unwrap();
        let options = TrainOptions::default();
        let trainer = Trainer::new(&backend, &data, &params, options, move |g, batch| {
            let outputs = g.param(&w)?.mul_mat(batch.features)?;
            let loss = outputs.mul(outputs)?.mean()?;
            Ok(Forward { loss, outputs })
        });
        trainer.map(drop).unwrap_err()
    };
    assert!(matches!(refuse("w", F16), Error::DType(_)));
    let text = refuse("@w", F32).to_string();
    assert!(
        text.contains("`@w`: names that begin with @ are the trainer's"),
        "{text}"
    );
    assert!(matches!(refuse(&"w".repeat(63), F32), Error::Param(_)));
}

#[test]
fn runs_that_make_no_sense_are_refused() {
    let (device, mut backend) = cpu();
    let data = data(8, 1);
    let mut trainer = trainer(
        &backend,
        &data,
        &weights(device, 5),
        TrainOptions::default(),
    );
    let early = EarlyStop {
        patience: 1,
        min_delta: 0.0,
    };
    let early = Fit::epochs(1).early_stop(early);
    let error = refused(trainer.fit(&mut backend, early));
    assert!(matches!(
        error,
        TrainError::Options {
            field: "early_stop",
            ..
        }
    ));
    let never = Fit::epochs(1).checkpoint("nowhere", Every::Steps(0));
    let error = refused(trainer.fit(&mut backend, never));
    assert!(matches!(
        error,
        TrainError::Options {
            field: "checkpoint",
            ..
        }
    ));
    assert_eq!(trainer.progress().step, 0);
}

/// The plans refuse to run there, before a gradient was added.
#[test]
fn the_wrong_backend_tears_nothing() {
    let (device, mut backend) = cpu();
    let data = data(8, 1);
    let params = weights(device, 5);
    let options = TrainOptions {
        optimizer: descent(0.1),
        ..TrainOptions::default()
    };
    let mut trainer = trainer(&backend, &data, &params, options);
    for device in crate::common::devices().into_iter().skip(1) {
        let mut other = device.open().unwrap();
        assert!(matches!(trainer.step(&mut other), Err(Error::Param(_))));
    }
    assert!(trainer.step(&mut backend).unwrap().is_some());
}

/// A GGUF that no trainer wrote, and one that is not whole: the file is named.
#[test]
fn what_is_no_checkpoint_is_named() {
    use ggml_rs::files::gguf::Builder;
    let (device, backend) = cpu();
    let data = data(20, 1);
    let params = weights(device, 5);
    let mut trainer = trainer(&backend, &data, &params, TrainOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let other = Builder::new().save(Vec::new(), params.iter()).unwrap();
    std::fs::write(&path, other).unwrap();
    let text = trainer.restore(&path).unwrap_err().to_string();
    let name = path.display().to_string();
    assert!(
        text.contains(&name) && text.contains("not a checkpoint: it has no key `train.version`"),
        "{text}"
    );
    let part = Builder::new().set("train.version", 1_u32).unwrap();
    std::fs::write(&path, part.save(Vec::new(), []).unwrap()).unwrap();
    let text = trainer.restore(&path).unwrap_err().to_string();
    assert!(
        text.contains(&name) && text.contains("key `train."),
        "{text}"
    );
}
