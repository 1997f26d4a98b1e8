//! Plans that share parameters on several threads: nobody sees values that are half written.
//!
//! With the locks removed (`Access::lock` in src/params/access.rs and the guards in src/params/storage.rs replaced by
//! nothing), `readers_never_see_half_a_write` fails within a fraction of a second: "torn: [..]". ThreadSanitizer needs
//! nightly Rust; this is the equivalent that stable Rust has, a checker for values that were torn.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use ggml_rs::DType::F32;
use ggml_rs::{
    Backend, Cancel, Device, Error, Graph, Input, Output, Param, Params, Plan, PlanOptions,
};

use crate::common::{if_free, until};

/// Long enough for a copy to take a while, and for several threads to share it.
const LEN: usize = 1 << 16;

fn two() -> (Param, Param) {
    let cpu = Device::cpu().unwrap();
    let storage = |name: &str| {
        let builder = Params::builder().tensor(name, F32, [LEN]).unwrap();
        let param = builder.allocate(cpu).unwrap().get(name).unwrap();
        param.zero().unwrap();
        param
    };
    (storage("left"), storage("right"))
}

fn backend() -> Backend {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(2).unwrap();
    backend
}

/// Sets every element of both parameters to one value.
fn writer(left: &Param, right: &Param) -> (Plan, Input, Backend) {
    let (graph, input) = Graph::build(|g| {
        let (value, input) = g.input("value", F32, [LEN])?;
        g.output("left", value.scale(1.0)?.cpy(g.weight(left)?)?)?;
        g.output("right", value.scale(1.0)?.cpy(g.weight(right)?)?)?;
        Ok(input)
    })
    .unwrap();
    let backend = backend();
    let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    (plan, input, backend)
}

/// Copies both.
fn reader(left: &Param, right: &Param) -> (Plan, [Output; 2], Backend) {
    let (graph, outputs) = Graph::build(|g| {
        // The other order, in which locks taken as they come would wait in a circle.
        let right = g.weight(right)?.scale(1.0)?;
        let left = g.weight(left)?.scale(1.0)?;
        Ok([g.output("right", right)?, g.output("left", left)?])
    })
    .unwrap();
    let backend = backend();
    let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    (plan, outputs, backend)
}

/// Fails unless all elements are the same.
fn whole(values: &[f32]) -> f32 {
    let torn = values.iter().find(|&&value| value != values[0]);
    assert!(torn.is_none(), "torn: {} and {}", values[0], torn.unwrap());
    values[0]
}

#[test]
fn readers_never_see_half_a_write() {
    const ROUNDS: usize = 300;
    let (left, right) = two();
    let done = AtomicBool::new(false);
    let checks = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut plan, input, mut backend) = writer(&left, &right);
            for round in 1..=ROUNDS {
                plan.set_f32(&input, &vec![round as f32; LEN]).unwrap();
                plan.run(&mut backend).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut plan, outputs, mut backend) = reader(&left, &right);
                let mut seen = 0.0;
                while !done.load(Ordering::Acquire) {
                    plan.run(&mut backend).unwrap();
                    let values = outputs
                        .each_ref()
                        .map(|y| whole(&plan.read_f32(y).unwrap()));
                    assert_eq!(values[0], values[1], "two storages of one run");
                    assert!(values[0] >= seen, "time runs forward");
                    seen = values[0];
                    checks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // From the host, whose access is under the same locks.
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                whole(&left.read_f32().unwrap());
                whole(&right.read_f32().unwrap());
                checks.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    let checks = checks.into_inner();
    println!("{ROUNDS} writes, {checks} checks");
    assert!(checks > 20, "{checks} checks are no stress");
    assert_eq!(whole(&left.read_f32().unwrap()), ROUNDS as f32);
}

/// Two plans add to one parameter. Sums that are read, added to and written back by two threads at once lose additions.
#[test]
fn no_addition_is_lost() {
    const ROUNDS: usize = 200;
    let (sum, other) = two();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (graph, one_in) = Graph::build(|g| {
                    let (one, one_in) = g.input("one", F32, [LEN])?;
                    let (held, other) = (g.weight(&sum)?, g.weight(&other)?);
                    g.output("sum", held.add(one)?.add(other)?.cpy(held)?)?;
                    Ok(one_in)
                })
                .unwrap();
                let mut backend = backend();
                let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
                plan.set_f32(&one_in, &[1.0; LEN]).unwrap();
                for _ in 0..ROUNDS {
                    plan.run(&mut backend).unwrap();
                }
            });
        }
    });
    assert_eq!(whole(&sum.read_f32().unwrap()), (2 * ROUNDS) as f32);
}

/// Graphs that use one parameter are built and planned on several threads while others run.
#[test]
fn building_does_not_disturb_running() {
    let (left, right) = two();
    left.set_f32(&[2.0; LEN]).unwrap();
    right.set_f32(&[3.0; LEN]).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let (mut plan, outputs, mut backend) = reader(&left, &right);
                    plan.run(&mut backend).unwrap();
                    let values = outputs
                        .each_ref()
                        .map(|y| whole(&plan.read_f32(y).unwrap()));
                    assert_eq!(values, [3.0, 2.0]);
                }
            });
        }
    });
}

/// A run that keeps its storage until it is cancelled.
fn long(held: &Param) -> (Plan, Backend) {
    let (graph, ()) = Graph::build(|g| {
        let weight = g.weight(held)?;
        let mut x = weight;
        for _ in 0..20_000 {
            x = x.scale(1.0)?;
        }
        g.output("y", x.cpy(weight)?)?;
        Ok(())
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(1).unwrap();
    let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    (plan, backend)
}

#[test]
fn try_run_is_busy_while_another_plan_writes() {
    let (held, free) = two();
    let (mut reads_held, _, mut backend) = reader(&held, &free);
    let (mut reads_free, _, mut other_backend) = reader(&free, &free);
    let cancel = Cancel::new();
    let (started, has_started) = mpsc::channel();
    thread::scope(|scope| {
        let stop = cancel.clone();
        let (mut plan, mut long_backend) = long(&held);
        let running = scope.spawn(move || {
            started.send(()).unwrap();
            // Again and again, so that it is running whenever the other thread looks.
            loop {
                match plan.run_with(&mut long_backend, until(&stop)) {
                    Ok(_) => continue,
                    Err(error) => return error,
                }
            }
        });
        has_started.recv().unwrap();
        let busy = (0..100_000).find_map(|_| reads_held.run_with(&mut backend, if_free()).err());
        assert_eq!(
            busy,
            Some(Error::Busy {
                what: "left".into()
            })
        );
        reads_free.run_with(&mut other_backend, if_free()).unwrap();
        // A run that waits for the lock can be cancelled too.
        let waiting = Cancel::new();
        let stop_waiting = waiting.clone();
        let held = &held;
        let waiter = scope.spawn(move || {
            let (mut plan, mut backend) = long(held);
            plan.run_with(&mut backend, until(&waiting))
        });
        stop_waiting.cancel();
        assert_eq!(waiter.join().unwrap(), Err(Error::Cancelled));
        cancel.cancel();
        assert_eq!(running.join().unwrap(), Error::Cancelled);
    });
    reads_held.run_with(&mut backend, if_free()).unwrap();
}
