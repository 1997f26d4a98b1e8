//! Early stop: when, and with which weights.

use std::ops::ControlFlow;

use ggml_rs::train::{EarlyStop, Event, Fit, Stop, Task, TrainOptions};

use crate::subject::{bits, cpu, data, descent, trainer, weights};

const PATIENCE: EarlyStop = EarlyStop {
    patience: 3,
    min_delta: 0.0,
};

/// The validation set is the data after a few epochs' worth of noise: it gets better, then worse.
#[test]
fn the_weights_of_the_best_epoch_come_back() {
    let (device, mut backend) = cpu();
    // Few samples are learnt by heart, which is of no use elsewhere.
    let (train, held_out) = (data(8, 1), data(64, 2));
    let params = weights(device, 5);
    let options = TrainOptions {
        batch: 8,
        optimizer: descent(0.5),
        ..TrainOptions::default()
    };
    let mut trainer = trainer(&backend, &train, &params, options);
    let mut epochs = Vec::new();
    let fit = Fit::epochs(10_000)
        .validate(&held_out, Task::Regress)
        .early_stop(PATIENCE)
        .on_event(|event| {
            if let Event::Epoch(report) = event {
                epochs.push((
                    report.validation.unwrap().loss.value,
                    report.best,
                    bits(&params),
                ));
            }
            ControlFlow::Continue(())
        });
    let finish = trainer.fit(&mut backend, fit).unwrap();
    assert_eq!(finish.stop, Stop::Early);
    let (best, loss) = finish.best.unwrap();
    let best = best as usize;
    assert!(best > 0, "it got better at first");
    assert_eq!(epochs.len(), best + 1 + 3, "three epochs of patience");
    assert!(epochs[best].1 && epochs[best + 1..].iter().all(|epoch| !epoch.1));
    assert!(epochs.iter().all(|epoch| epoch.0 >= loss) && epochs[best].0 == loss);
    assert!(
        bits(&params) == epochs[best].2,
        "the weights of the best epoch"
    );
    assert!(bits(&params) != epochs.last().unwrap().2);
    // What was evaluated is what came back.
    let again = trainer
        .evaluate(&mut backend, &held_out, Task::Regress)
        .unwrap();
    assert_eq!(again.loss.value, loss);
    // A run that is over stays over.
    let fit = Fit::epochs(10_000)
        .validate(&held_out, Task::Regress)
        .early_stop(PATIENCE);
    assert_eq!(trainer.fit(&mut backend, fit).unwrap(), finish);
}

/// As above, but the epochs run out before the patience does.
#[test]
fn the_last_epoch_may_not_be_the_best_either() {
    let (device, mut backend) = cpu();
    let (train, held_out) = (data(8, 1), data(64, 2));
    let options = TrainOptions {
        batch: 8,
        optimizer: descent(0.5),
        ..TrainOptions::default()
    };
    let mut run = |epochs, patience| {
        let params = weights(device, 5);
        let mut trainer = trainer(&backend, &train, &params, options);
        let rule = EarlyStop {
            patience,
            min_delta: 0.0,
        };
        let fit = Fit::epochs(epochs)
            .validate(&held_out, Task::Regress)
            .early_stop(rule);
        (trainer.fit(&mut backend, fit).unwrap(), bits(&params))
    };
    let (early, weights) = run(10_000, 3);
    let (best, _) = early.best.unwrap();
    // Two epochs more than the best.
    let (finish, the_same) = run(best + 3, u64::MAX);
    assert_eq!((finish.stop, finish.best), (Stop::Epochs, early.best));
    assert!(weights == the_same);
}
