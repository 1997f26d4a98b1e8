//! Runs that are stopped from another thread.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ggml_rs::DType::F32;
use ggml_rs::{
    Cancel, Device, Error, Graph, Input, Output, Param, Params, Plan, PlanOptions, Scheduler,
};

use crate::common::until;

fn chain(nodes: usize, len: usize) -> (Graph, (Input, Output)) {
    Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [len])?;
        let mut y = x;
        for _ in 0..nodes {
            y = y.scale(1.0)?;
        }
        Ok((x_in, g.output("y", y)?))
    })
    .unwrap()
}

/// Switches `cancel` on after a while, and says when it begins to wait.
fn stop_after(cancel: &Cancel, wait: Duration) -> thread::JoinHandle<()> {
    let stop = cancel.clone();
    let (starting, started) = mpsc::channel();
    let stopper = thread::spawn(move || {
        starting.send(()).unwrap();
        thread::sleep(wait);
        stop.cancel();
    });
    started.recv().unwrap();
    stopper
}

/// A graph that counts, in parameters, how often it began and how often it reached its end.
fn counted(begins: &Param, ends: &Param) -> (Graph, [Input; 2]) {
    Graph::build(|g| {
        let (one, one_in) = g.input("one", F32, [1])?;
        let (x, x_in) = g.input("x", F32, [1 << 15])?;
        let count = |param: &Param| {
            let held = g.weight(param)?;
            one.add(held)?.cpy(held)
        };
        g.output("begins", count(begins)?)?;
        let mut y = x;
        for _ in 0..20_000 {
            y = y.scale(1.0)?;
        }
        g.output("y", y)?;
        g.output("ends", count(ends)?)?;
        Ok([one_in, x_in])
    })
    .unwrap()
}

/// Without the callback (`Watching::start` answering `None`) no run ends in the middle, and this fails.
#[test]
fn a_run_stops_in_the_middle_and_runs_again() {
    let cpu = Device::cpu().unwrap();
    for threads in [1, 2] {
        let builder = Params::builder().tensor("begins", F32, [1]).unwrap();
        let params = builder
            .tensor("ends", F32, [1])
            .unwrap()
            .allocate(cpu)
            .unwrap();
        let (begins, ends) = (params.get("begins").unwrap(), params.get("ends").unwrap());
        params.zero().unwrap();
        let (graph, inputs) = counted(&begins, &ends);
        let mut backend = cpu.open().unwrap();
        backend.set_threads(threads).unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&inputs[0], &[1.0]).unwrap();
        plan.set_f32(&inputs[1], &[1.0; 1 << 15]).unwrap();

        // When the machine is busy the switch may come before the first node, or after the last: try again.
        let stopped_in_the_middle = (1..200).any(|attempt| {
            let before = begins.read_f32().unwrap()[0] - ends.read_f32().unwrap()[0];
            let cancel = Cancel::new();
            let stopper = stop_after(&cancel, Duration::from_millis(attempt));
            let outcome = plan.run_with(&mut backend, until(&cancel));
            stopper.join().unwrap();
            assert!(
                matches!(outcome, Ok(_) | Err(Error::Cancelled)),
                "{outcome:?}"
            );
            let after = begins.read_f32().unwrap()[0] - ends.read_f32().unwrap()[0];
            after > before
        });
        assert!(stopped_in_the_middle, "{threads} threads");
        assert!(!backend.is_poisoned());

        let ended = ends.read_f32().unwrap()[0];
        plan.run_with(&mut backend, until(&Cancel::new())).unwrap();
        plan.run(&mut backend).unwrap();
        assert_eq!(ends.read_f32().unwrap(), [ended + 2.0]);
    }
}

#[test]
fn a_switch_is_not_watched_after_its_run() {
    let (graph, (x, y)) = chain(4, 8);
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&x, &[1.5; 8]).unwrap();
    let cancel = Cancel::new();
    plan.run_with(&mut backend, until(&cancel)).unwrap();
    cancel.cancel();
    assert_eq!(
        plan.run_with(&mut backend, until(&cancel)),
        Err(Error::Cancelled)
    );
    let unread = plan.read_f32(&y).unwrap_err().to_string();
    assert!(unread.contains("no run has finished"), "{unread}");
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [1.5; 8]);
}

#[test]
fn a_switch_that_is_on_stops_before_the_first_node() {
    let (graph, (x, y)) = chain(4, 8);
    let mut scheduler = Scheduler::best().unwrap();
    let mut plan = Plan::new(graph, &scheduler, PlanOptions::default()).unwrap();
    plan.set_f32(&x, &[1.0; 8]).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    assert!(cancel.is_cancelled());
    let stopped = plan.run_with(&mut scheduler, until(&cancel));
    assert_eq!(stopped, Err(Error::Cancelled));
    assert!(plan.read_f32(&y).is_err());
}

/// The simulated device looks at the switch between parts of the graph.
#[test]
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
fn a_metal_run_stops_between_parts() {
    let (graph, (x, y)) = chain(2_000, 1 << 12);
    let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&x, &[1.5; 1 << 12]).unwrap();
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        stop.cancel();
    });
    assert_eq!(
        plan.run_with(&mut backend, until(&cancel)),
        Err(Error::Cancelled)
    );
    stopper.join().unwrap();
    assert!(!backend.is_poisoned());
    cancel.reset();
    plan.run_with(&mut backend, until(&cancel)).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [1.5; 1 << 12]);
}
