//! Evaluations against the graph's own loss, whatever the batches.

use ggml_rs::DType::F32;
use ggml_rs::train::{Arrays, Forward, Task, TrainOptions, Trainer};
use ggml_rs::{Params, Result};

use crate::common;
use crate::subject::{cpu, data, trainer, weights};

#[test]
fn outputs_do_not_depend_on_batches() -> Result<()> {
    let (device, mut backend) = cpu();
    let (train, held_out) = (data(20, 1), data(50, 2));
    let outputs = [50, 8, 1].map(|batch| {
        let options = TrainOptions {
            batch,
            ..TrainOptions::default()
        };
        let mut trainer = trainer(&backend, &train, &weights(device, 5), options);
        let outputs = trainer.predict(&mut backend, &held_out).unwrap();
        let found = trainer
            .evaluate(&mut backend, &held_out, Task::Regress)
            .unwrap();
        assert_eq!((outputs.len(), found.loss.samples), (150, 50));
        assert!(found.accuracy.is_none());
        (outputs, found.loss)
    });
    let (first, others) = outputs.split_first().unwrap();
    for other in others {
        for (a, b) in first.0.iter().zip(&other.0) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
        assert!((first.1.value - other.1.value).abs() < 1e-6);
        assert!((first.1.standard_error - other.1.standard_error).abs() < 1e-6);
    }
    // By hand, from the outputs.
    let mut losses = Vec::new();
    for (outputs, (_, labels)) in first.0.chunks_exact(3).zip(held_out.samples()) {
        let squares = outputs
            .iter()
            .zip(labels)
            .map(|(o, l)| f64::from(o - l).powi(2));
        losses.push(squares.sum::<f64>() / 3.0);
    }
    let mean = losses.iter().sum::<f64>() / 50.0;
    let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / 49.0;
    assert!((first.1.value - mean).abs() < 1e-7);
    assert!((first.1.standard_error - (variance / 50.0).sqrt()).abs() < 1e-7);
    Ok(())
}

/// The loss of the graph is ggml's, that of an evaluation is ours.
#[test]
fn both_cross_entropies_agree() -> Result<()> {
    let (device, mut backend) = cpu();
    let classes: Vec<usize> = (0..30).map(|i| i * i % 4).collect();
    let data = Arrays::classes(&[5], common::values(150, 3), 4, &classes)?;
    let params = Params::builder()
        .tensor("w", F32, [5, 4])?
        .allocate(device)?;
    let w = params.get("w")?;
    w.set_f32(&common::values(20, 4))?;
    let options = TrainOptions {
        batch: 30,
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::new(&backend, &data, &params, options, move |g, batch| {
        let outputs = g.param(&w)?.mul_mat(batch.features)?;
        let loss = outputs.cross_entropy_loss(batch.labels)?;
        Ok(Forward { loss, outputs })
    })?;
    let found = trainer.evaluate(&mut backend, &data, Task::Classify)?;
    let outputs = trainer.predict(&mut backend, &data)?;
    let report = trainer.step(&mut backend)?.unwrap();
    assert!(
        (found.loss.value - report.loss).abs() < 1e-6,
        "{} {}",
        found.loss,
        report.loss
    );

    let right = outputs
        .chunks_exact(4)
        .zip(&classes)
        .filter(|(outputs, class)| {
            outputs
                .iter()
                .enumerate()
                .all(|(i, o)| i == **class || *o < outputs[**class])
        });
    let (right, accuracy) = (right.count(), found.accuracy.unwrap());
    assert_eq!((accuracy.hits, accuracy.samples), (right, 30));
    assert!(right > 0 && right < 30, "the test tells right from wrong");
    Ok(())
}
