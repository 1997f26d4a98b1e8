//! One training step of example `mlp_digits`: 64 pixels, 128 hidden, 10 digits, AdamW; and its OUT_PRODs alone, which are the gradients
//! of both weights and of what lies between.
//!
//! `cargo bench -p ggml-rs-benches --bench train_step`. The second time divided by the first is OUT_PROD's share, a run's start included.

use std::ops::ControlFlow;

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, Throughput};
use ggml_rs::DType::F32;
use ggml_rs::train::{Arrays, Event, Fit, Forward, TrainOptions, Trainer};
use ggml_rs::{Backend, Device, Graph, Params, Plan, PlanOptions};
use ggml_rs_benches::ramp;

const PIXELS: usize = 64;
const HIDDEN: usize = 128;
const DIGITS: usize = 10;
/// What the example takes, and a large one.
const BATCHES: [usize; 2] = [32, 256];
const THREADS: [usize; 2] = [1, 2];

fn backend(threads: usize) -> Result<Backend> {
    let mut backend = Device::cpu()?.open()?;
    backend.set_threads(threads)?;
    Ok(backend)
}

fn trainer(backend: &Backend, batch: usize) -> Result<Trainer<Arrays>> {
    let weights = Params::builder()
        .tensor("w1", F32, [PIXELS, HIDDEN])?
        .tensor("b1", F32, [HIDDEN])?
        .tensor("w2", F32, [HIDDEN, DIGITS])?
        .tensor("b2", F32, [DIGITS])?
        .allocate(backend.device())?;
    for weight in weights.iter() {
        let values = ramp(weight.shape().elements());
        weight.set_f32(&values.iter().map(|value| value / 8.0).collect::<Vec<_>>())?;
    }
    let samples = 4 * batch;
    let digits: Vec<_> = (0..samples).map(|sample| sample % DIGITS).collect();
    let data = Arrays::classes(&[PIXELS], ramp(samples * PIXELS), DIGITS, &digits)?;
    let options = TrainOptions {
        batch,
        ..TrainOptions::default()
    };
    let [w1, b1, w2, b2] = ["w1", "b1", "w2", "b2"].map(|name| weights.get(name));
    let (w1, b1, w2, b2) = (w1?, b1?, w2?, b2?);
    Ok(Trainer::new(
        backend,
        data,
        &weights,
        options,
        move |g, batch| {
            let hidden = g
                .param(&w1)?
                .mul_mat(batch.features)?
                .add(g.param(&b1)?)?
                .relu()?;
            let outputs = g.param(&w2)?.mul_mat(hidden)?.add(g.param(&b2)?)?;
            let loss = outputs.cross_entropy_loss(batch.labels)?;
            Ok(Forward { loss, outputs })
        },
    )?)
}

/// The products of the step's backward: by both weights, and by the hidden layer, whose second operand is turned.
fn out_prods(backend: &Backend, batch: usize) -> Result<Plan> {
    let (graph, inputs) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [PIXELS, batch])?;
        let (hidden, hidden_in) = g.input("hidden", F32, [HIDDEN, batch])?;
        let (w2, w2_in) = g.input("w2", F32, [HIDDEN, DIGITS])?;
        let (d_hidden, d_hidden_in) = g.input("d hidden", F32, [HIDDEN, batch])?;
        let (d_out, d_out_in) = g.input("d out", F32, [DIGITS, batch])?;
        g.output("d w1", x.out_prod(d_hidden)?)?;
        g.output("d w2", hidden.out_prod(d_out)?)?;
        g.output("to hidden", w2.out_prod(d_out.transpose()?)?)?;
        Ok([x_in, hidden_in, w2_in, d_hidden_in, d_out_in])
    })?;
    let mut plan = Plan::new(graph, backend, PlanOptions::default())?;
    for input in &inputs {
        plan.set_f32(input, &ramp(input.shape().elements()))?;
    }
    Ok(plan)
}

/// As many steps as are asked for, whatever the epochs.
fn steps(trainer: &mut Trainer<Arrays>, backend: &mut Backend, count: u64) -> Result<()> {
    let mut left = count;
    let run = Fit::epochs(u64::MAX).on_event(|event| {
        left -= u64::from(matches!(event, Event::Step(_)));
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    trainer.fit(backend, run)?;
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("train_step");
    for batch in BATCHES {
        group.throughput(Throughput::Elements(batch as u64));
        for threads in THREADS {
            let mut backend = backend(threads)?;
            let shape = format!("batch {batch}, threads {threads}");
            let mut trainer = trainer(&backend, batch)?;
            group.bench_function(BenchmarkId::new("step", &shape), |bencher| {
                bencher.iter(|| steps(&mut trainer, &mut backend, 1).expect("a step"));
            });
            let mut plan = out_prods(&backend, batch)?;
            group.bench_function(BenchmarkId::new("its OUT_PRODs", &shape), |bencher| {
                bencher.iter(|| plan.run(&mut backend).expect("ran before"));
            });
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
