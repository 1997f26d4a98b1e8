//! Steps: large batches in parts, clipping, schedules, and which samples they are made of.

use std::cell::RefCell;
use std::collections::HashMap;

use ggml_rs::DType::F32;
use ggml_rs::train::{Arrays, Clip, Dataset, Decay, Forward, Schedule, TrainOptions, Trainer};
use ggml_rs::{AdamW, Params};

use crate::common;
use crate::subject::{self, bits, cpu, data, descent, odd, trainer, weights};

/// 48 samples as one batch, and as six of seven and one of six: the last counts less.
#[test]
fn accumulated_batches_are_one_large_batch() {
    for device in common::devices() {
        let mut backend = subject::open(device);
        let data = data(48, 1);
        let [whole, parts] = [(48, 1), (7, 7)].map(|(batch, accumulate)| {
            let weights = weights(device, 5);
            let options = TrainOptions {
                batch,
                accumulate,
                optimizer: descent(0.5),
                ..TrainOptions::default()
            };
            let mut trainer = trainer(&backend, &data, &weights, options);
            let mut losses = Vec::new();
            for _ in 0..3 {
                let report = trainer.step(&mut backend).unwrap().unwrap();
                assert_eq!(report.samples, 48);
                losses.push(report.loss);
                assert!(trainer.step(&mut backend).unwrap().is_none());
                trainer.end_epoch();
            }
            let values: Vec<_> = weights.iter().flat_map(|w| w.read_f32().unwrap()).collect();
            (losses, values)
        });
        for (a, b) in whole.0.iter().zip(&parts.0) {
            assert!((a - b).abs() < 1e-6, "{whole:?} {parts:?}");
        }
        for (a, b) in whole.1.iter().zip(&parts.1) {
            assert!((a - b).abs() < 2e-6, "{}: {a} {b}", device.name());
        }
        assert!(whole.0[2] < whole.0[0] * 0.9, "it learns: {:?}", whole.0);
    }
}

#[test]
fn an_epoch_is_every_sample_once() {
    let (device, mut backend) = cpu();
    let asked = RefCell::new(HashMap::new());
    let watched = odd(
        data(50, 1),
        || 50,
        |data, index, features, labels| {
            *asked.borrow_mut().entry(index).or_insert(0) += 1;
            data.sample(index, features, labels)
        },
    );
    let options = TrainOptions {
        batch: 8,
        accumulate: 3,
        ..TrainOptions::default()
    };
    let mut trainer = trainer(&backend, &watched, &weights(device, 5), options);
    for epoch in 1..=2 {
        let mut samples = Vec::new();
        let mut sum = 0.0;
        while let Some(report) = trainer.step(&mut backend).unwrap() {
            samples.push(report.samples);
            sum += report.loss * report.samples as f64;
        }
        assert_eq!(samples, [24, 24, 2]);
        let mean = trainer.end_epoch();
        assert!((mean - sum / 50.0).abs() < 1e-12);
        let asked = asked.borrow();
        assert!(asked.len() == 50 && asked.values().all(|&times| times == epoch));
    }
    assert_eq!((trainer.progress().step, trainer.progress().epoch), (6, 2));
}

/// y = w · x + b on four samples, whose gradients are sums of a few products.
struct Line {
    x: [[f32; 2]; 4],
    y: [f32; 4],
    w: [f32; 2],
    b: f32,
}

const LINE: Line = Line {
    x: [[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25], [2.0, 1.0]],
    y: [3.0, -7.0, 2.0, 11.0],
    w: [0.75, -0.5],
    b: 0.125,
};

impl Line {
    /// Of the mean of squared errors: by w and by b.
    fn gradient(&self) -> [f64; 3] {
        let mut gradient = [0.0; 3];
        for (x, y) in self.x.iter().zip(self.y) {
            let x = x.map(f64::from);
            let w = self.w.map(f64::from);
            let error = w[0] * x[0] + w[1] * x[1] + f64::from(self.b) - f64::from(y);
            for (slope, by) in gradient.iter_mut().zip([x[0], x[1], 1.0]) {
                *slope += 2.0 * error * by / 4.0;
            }
        }
        gradient
    }

    /// What a step of length 1 takes off, and the norm that it reports.
    fn step(&self, clip: Option<Clip>) -> ([f64; 3], f64) {
        let (device, mut backend) = cpu();
        let data = Arrays::new(&[2], self.x.concat(), &[1], self.y.to_vec()).unwrap();
        let params = Params::builder()
            .tensor("w", F32, [2, 1])
            .and_then(|params| params.tensor("b", F32, [1]))
            .and_then(|params| params.allocate(device))
            .unwrap();
        let (w, b) = (params.get("w").unwrap(), params.get("b").unwrap());
        w.set_f32(&self.w).unwrap();
        b.set_f32(&[self.b]).unwrap();
        let options = TrainOptions {
            clip,
            optimizer: descent(1.0),
            ..TrainOptions::default()
        };
        let of_model = (w.clone(), b.clone());
        let model = Trainer::new(&backend, &data, &params, options, move |g, batch| {
            let outputs = g.param(&of_model.0)?.mul_mat(batch.features)?;
            let outputs = outputs.add(g.param(&of_model.1)?)?;
            let error = outputs.sub(batch.labels)?;
            let loss = error.mul(error)?.mean()?;
            Ok(Forward { loss, outputs })
        });
        let report = model.unwrap().step(&mut backend).unwrap().unwrap();
        let (w, b) = (w.read_f32().unwrap(), b.read_f32().unwrap());
        let taken = [(self.w[0], w[0]), (self.w[1], w[1]), (self.b, b[0])];
        let taken = taken.map(|(before, after)| f64::from(before) - f64::from(after));
        (taken, report.gradient_norm)
    }
}

#[test]
fn gradients_are_clipped_as_in_f64() {
    let gradient = LINE.gradient();
    let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    // Each limit, and what is left of an element under it.
    type Clipped = fn(f64, f64) -> f64;
    let cases: [(Option<Clip>, Clipped); 4] = [
        (None, |g, _| g),
        (Some(Clip::Norm(2.5)), |g, norm| g * 2.5 / norm),
        (Some(Clip::Norm(1e3)), |g, _| g),
        (Some(Clip::Value(5.0)), |g, _| g.clamp(-5.0, 5.0)),
    ];
    // Both kinds have something to do here, and value clipping leaves an element alone.
    assert!(norm > 2.5 && gradient.iter().any(|g| g.abs() > 5.0));
    assert!(gradient.iter().any(|g| g.abs() < 5.0), "{gradient:?}");
    for (clip, clipped) in cases {
        let (taken, reported) = LINE.step(clip);
        assert!(
            (reported - norm).abs() < 1e-5 * norm,
            "{reported}, not {norm}"
        );
        for (taken, gradient) in taken.iter().zip(gradient) {
            let expected = clipped(gradient, norm);
            assert!(
                (taken - expected).abs() < 4e-6,
                "{clip:?}: {taken}, not {expected}"
            );
        }
    }
}

#[test]
fn steps_follow_the_schedule() {
    let (device, mut backend) = cpu();
    let data = data(40, 1);
    let schedule = Schedule {
        warmup: 2,
        decay: Decay::Step {
            every: 3,
            factor: 0.5,
        },
    };
    let options = TrainOptions {
        batch: 5,
        optimizer: ggml_rs::train::Optimizer::AdamW(AdamW {
            learning_rate: 0.25,
            ..AdamW::default()
        }),
        schedule,
        ..TrainOptions::default()
    };
    let params = weights(device, 5);
    let mut trainer = trainer(&backend, &data, &params, options);
    let mut rates = Vec::new();
    let mut moved = Vec::new();
    while let Some(report) = trainer
        .step(&mut backend)
        .map_err(|e| e.to_string())
        .unwrap()
    {
        rates.push(report.learning_rate);
        moved.push(bits(&params));
    }
    assert_eq!(rates, [0.125, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125]);
    moved.dedup();
    assert_eq!(moved.len(), 8, "every step changed the weights");
}
