//! Runs that are stopped from outside, and go on in the same process: the same bits as without.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml_rs::train::{Dataset, Event, Fit, Stop, TrainError, TrainOptions};
use ggml_rs::{Error, Result};

use crate::subject::{Sampled, bits, cpu, data, odd, trainer, weights};

const OPTIONS: fn() -> TrainOptions = || TrainOptions {
    batch: 4,
    accumulate: 2,
    ..TrainOptions::default()
};
const EPOCHS: u64 = 3;

/// Of a run that nothing interrupts.
fn expected() -> Vec<u32> {
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let data = data(37, 1);
    let mut trainer = trainer(&backend, &data, &params, OPTIONS());
    trainer.fit(&mut backend, Fit::epochs(EPOCHS)).unwrap();
    bits(&params)
}

/// The step of an event.
fn step(event: Event) -> Option<u64> {
    match event {
        Event::Step(report) => Some(report.step),
        _ => None,
    }
}

#[test]
fn a_callback_stops_a_run_that_goes_on() {
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let data = data(37, 1);
    let mut trainer = trainer(&backend, &data, &params, OPTIONS());
    for stop in [1, 5, 7] {
        let fit = Fit::epochs(EPOCHS).on_event(|event| match step(event) {
            Some(step) if step == stop => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(trainer.fit(&mut backend, fit).unwrap().stop, Stop::Callback);
        assert_eq!(trainer.progress().step, stop);
    }
    let finish = trainer.fit(&mut backend, Fit::epochs(EPOCHS)).unwrap();
    assert_eq!(finish.stop, Stop::Epochs);
    assert_eq!(trainer.progress().step, 15);
    assert!(bits(&params) == expected());
}

#[test]
fn a_callback_may_panic() {
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let data = data(37, 1);
    let mut trainer = trainer(&backend, &data, &params, OPTIONS());
    for at in [3, 5] {
        let fit = Fit::epochs(EPOCHS).on_event(|event| {
            assert_ne!(step(event), Some(at), "the callback's own");
            ControlFlow::Continue(())
        });
        let run = AssertUnwindSafe(|| trainer.fit(&mut backend, fit));
        let panic = catch_unwind(run).unwrap_err();
        assert!(
            panic
                .downcast_ref::<String>()
                .unwrap()
                .contains("the callback's own")
        );
        assert_eq!(trainer.progress().step, at);
    }
    trainer.fit(&mut backend, Fit::epochs(EPOCHS)).unwrap();
    assert!(bits(&params) == expected());
}

/// Some sample comes in the second batch of a step, when gradients of the first are in the sums.
#[test]
fn a_data_set_may_panic_or_fail() {
    let refuse = |index| -> Sampled {
        assert!(index % 10 != 3, "sample {index} is gone");
        match index % 10 {
            7 => Err("not now".into()),
            _ => Ok(()),
        }
    };
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let asked = RefCell::new(HashSet::new());
    let unsteady = odd(
        data(37, 1),
        || 37,
        |data, index, features, labels| {
            let first = asked.borrow_mut().insert(index);
            if first {
                refuse(index)?;
            }
            data.sample(index, features, labels)
        },
    );
    let mut trainer = trainer(&backend, &unsteady, &params, OPTIONS());
    let (mut panics, mut errors) = (0, 0);
    loop {
        let before = bits(&params);
        let run = AssertUnwindSafe(|| trainer.step(&mut backend));
        match catch_unwind(run) {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => {
                trainer.end_epoch();
                if trainer.progress().epoch == EPOCHS {
                    break;
                }
            }
            Ok(Err(Error::Train(error))) => {
                assert!(
                    matches!(&*error, TrainError::Sample { index, detail }
                    if index % 10 == 7 && detail == "not now"),
                    "{error}"
                );
                assert!(before == bits(&params));
                errors += 1;
            }
            Ok(Err(error)) => panic!("{error}"),
            Err(_) => {
                assert!(before == bits(&params));
                panics += 1;
            }
        }
    }
    assert_eq!((panics, errors), (4, 3));
    assert!(bits(&params) == expected());
}

#[test]
fn an_evaluation_changes_nothing() -> Result<()> {
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let (train, other) = (data(37, 1), data(21, 2));
    let mut trainer = trainer(&backend, &train, &params, OPTIONS());
    while trainer.progress().epoch < EPOCHS {
        trainer.predict(&mut backend, &other)?;
        if trainer.step(&mut backend)?.is_none() {
            trainer.end_epoch();
        }
    }
    assert!(bits(&params) == expected());
    Ok(())
}
