//! Pools of threads: shared by backends on several threads, left, and kept alive.

use std::thread;

use ggml_rs::DType::{F16, F32};
use ggml_rs::{
    Backend, Device, Graph, Input, Output, Plan, PlanOptions, Priority, ThreadPool,
    ThreadPoolOptions,
};

use crate::common;

const N: usize = 96;

/// A product, whose threads share ggml's counter of chunks, and a sum behind it.
fn product(backend: &Backend) -> (Plan, Input, Output) {
    let (graph, (x, y)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [N, N])?;
        let mut y = x;
        for _ in 0..4 {
            y = x.mul_mat(y)?.scale(1.0 / N as f32)?;
        }
        Ok((x_in, g.output("y", y)?))
    })
    .unwrap();
    (
        Plan::new(graph, backend, PlanOptions::default()).unwrap(),
        x,
        y,
    )
}

fn pool(threads: usize, polling: u32) -> ThreadPool {
    let mut options = ThreadPoolOptions::default();
    options.threads = threads;
    options.polling = polling;
    ThreadPool::new(options).unwrap()
}

/// Without the turns that backends take, two graphs share one barrier and one counter: the run hangs or its results are
/// wrong (seen by removing the guard in `Backend::compute`).
#[test]
fn two_backends_on_two_threads_take_turns() {
    let pool = pool(2, 1);
    let handles: Vec<_> = (0..2)
        .map(|i| {
            let mut backend = Device::cpu().unwrap().open().unwrap();
            backend.set_thread_pool(&pool).unwrap();
            thread::spawn(move || {
                let (mut plan, x, y) = product(&backend);
                let value = (i + 1) as f32;
                plan.set_f32(&x, &[value; N * N]).unwrap();
                for _ in 0..60 {
                    plan.run(&mut backend).unwrap();
                    let wanted = value.powi(5);
                    let found = plan.read_f32(&y).unwrap();
                    assert!(
                        found
                            .iter()
                            .all(|&found| (found - wanted).abs() < wanted * 1e-4)
                    );
                }
            })
        })
        .collect();
    drop(pool);
    handles
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
}

/// ggml pauses a pool that a backend leaves, even one that another backend computes with, which then waits forever.
#[test]
fn leaving_a_pool_does_not_stop_it() {
    let pool = pool(2, 0);
    let mut stays = Device::cpu().unwrap().open().unwrap();
    stays.set_thread_pool(&pool).unwrap();
    let run = thread::spawn(move || {
        let (mut plan, x, _) = product(&stays);
        plan.set_f32(&x, &[1.0; N * N]).unwrap();
        (0..100).for_each(|_| plan.run(&mut stays).unwrap());
    });
    let mut leaves = Device::cpu().unwrap().open().unwrap();
    let (mut plan, x, y) = product(&leaves);
    plan.set_f32(&x, &[1.0; N * N]).unwrap();
    let mut rounds = 0;
    while !run.is_finished() {
        leaves.set_thread_pool(&pool).unwrap();
        leaves.set_threads(1 + rounds % 2).unwrap();
        plan.run(&mut leaves).unwrap();
        rounds += 1;
    }
    run.join().unwrap();
    let near = |value: &f32| (value - 1.0).abs() < 1e-4;
    assert!(plan.read_f32(&y).unwrap().iter().all(near));
    assert!(rounds > 0);
}

/// A sum over all rows, to which each thread adds those that it takes.
#[test]
fn a_loss_does_not_depend_on_threads() {
    let (classes, rows, seed) = (33, 1000, 5);
    let values = common::values(2 * classes * rows, seed);
    let (logits, labels) = values.split_at(classes * rows);
    let (graph, (logits_in, labels_in, loss)) = Graph::build(|g| {
        let (logits, logits_in) = g.input("logits", F32, [classes, rows])?;
        let (labels, labels_in) = g.input("labels", F32, [classes, rows])?;
        let loss = logits.cross_entropy_loss(labels)?;
        Ok((logits_in, labels_in, g.output("loss", loss)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&logits_in, logits).unwrap();
    plan.set_f32(&labels_in, labels).unwrap();
    let mut with = |threads| {
        backend.set_threads(threads).unwrap();
        plan.run(&mut backend).unwrap();
        plan.read_f32(&loss).unwrap()[0].to_bits()
    };
    let one = with(1);
    for threads in 2..=8 {
        assert_eq!(with(threads), one, "{threads} threads, seed {seed}");
    }
}

#[test]
fn a_backend_keeps_its_pool() {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_thread_pool(&pool(2, 50)).unwrap();
    let (mut plan, x, y) = product(&backend);
    plan.set_f32(&x, &[1.0; N * N]).unwrap();
    plan.run(&mut backend).unwrap();
    assert!((plan.read_f32(&y).unwrap()[0] - 1.0).abs() < 1e-4);
    // Another one, with other settings, on a plan that exists.
    let mut options = ThreadPoolOptions::default();
    options.threads = 2;
    options.priority = Priority::Low;
    options.cpus = vec![0];
    options.strict = true;
    backend
        .set_thread_pool(&ThreadPool::new(options).unwrap())
        .unwrap();
    plan.run(&mut backend).unwrap();
    backend.set_threads(3).unwrap();
    plan.run(&mut backend).unwrap();
}

#[test]
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
fn only_the_cpu_has_pools() {
    let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
    let error = backend.set_thread_pool(&pool(2, 0)).unwrap_err();
    assert!(error.to_string().contains("only the CPU"), "{error}");
}

/// With one row more, and 512 threads, a kernel's `(rows + threads - 1) / threads` overflows: nothing was computed.
#[test]
#[ignore = "needs 10 GiB of memory and a minute: .ci/nightly runs it"]
fn as_many_rows_as_are_taken_are_all_computed() {
    const ROWS: usize = i32::MAX as usize - 512;
    const STEP: usize = ROWS / 1000;
    for threads in [2, 3] {
        let (graph, (x, ys)) = Graph::build(|g| {
            let (x_tensor, x) = g.input("x", F16, [1, 1])?;
            let rows = x_tensor.repeat([1, ROWS])?.silu()?.gelu()?;
            // Every STEP-th row, and the last ones.
            let spread = rows.view([1, 1000], [2 * STEP; 3], 0)?.cont()?;
            let last = rows.view([1, 9], [2; 3], 2 * (ROWS - 9))?.cont()?;
            Ok((x, [g.output("spread", spread)?, g.output("last", last)?]))
        })
        .unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        backend.set_threads(threads).unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&x, &[1.0]).unwrap();
        plan.run(&mut backend).unwrap();
        for y in ys {
            let values = plan.read_f32(&y).unwrap();
            // gelu(silu(1)).
            let right = |value: &f32| (value - 0.561).abs() < 2e-3;
            assert!(values.iter().all(right), "{threads} threads: {values:?}");
        }
    }
}
