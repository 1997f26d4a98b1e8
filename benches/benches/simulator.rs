//! How fast the simulated Metal device multiplies: `kernel_mul_mm` at 512 cubed on two threads.
//!
//! A floating-point operation counts as an element, so criterion's `Gelem/s` are GFLOP/s. The figure is about the simulator
//! alone, and decides how many cases a test run can afford. `cargo bench -p ggml-rs-benches --bench simulator`

use anyhow::{Context, Result, ensure};
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, measurement::WallTime,
};
use ggml_rs::{DType, Device, Graph, Plan, PlanOptions, RunOptions, Staging};
use ggml_rs_benches::{OutProd, Prepared, ramp};

const SIDE: usize = 512;
const THREADS: &str = "2";

/// MUL_MAT: the product alone, staged in half.
fn mul_mat(device: Device) -> Result<Prepared> {
    let (graph, inputs) = Graph::build(|g| {
        let (a, a_in) = g.input("a", DType::F32, [SIDE, SIDE])?;
        let (b, b_in) = g.input("b", DType::F32, [SIDE, SIDE])?;
        g.output("product", a.mul_mat(b)?)?;
        Ok([a_in, b_in])
    })?;
    let backend = device.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    for input in inputs {
        plan.set_f32(&input, &ramp(SIDE * SIDE))?;
    }
    Ok(Prepared { plan, backend })
}

/// OUT_PROD: two copies that transpose, then the product.
fn out_prod(device: Device, staging: Staging) -> Result<Prepared> {
    let shape = OutProd {
        weight: DType::F32,
        m: SIDE,
        n: SIDE,
        k: SIDE,
    };
    shape.prepare(device, staging)
}

/// Times `prepared`, once it has shown that it runs the kernel that it is named after.
fn time(
    group: &mut BenchmarkGroup<'_, WallTime>,
    op: &str,
    kernel: &str,
    mut prepared: Prepared,
) -> Result<()> {
    let options = RunOptions {
        trace: true,
        ..RunOptions::default()
    };
    let report = prepared.plan.run_with(&mut prepared.backend, options)?;
    let dispatches = report.dispatches;
    let product = dispatches
        .iter()
        .find(|dispatch| dispatch.pipeline.starts_with("kernel_mul_mm"))
        .with_context(|| format!("{op}: no product among {dispatches:?}"))?;
    let dispatched = product.pipeline.split("_bci").next();
    ensure!(
        dispatched == Some(kernel),
        "{op} dispatched {}",
        product.pipeline
    );
    group.bench_function(BenchmarkId::new(op, kernel), |bencher| {
        bencher.iter(|| prepared.run().expect("ran before"));
    });
    Ok(())
}

fn main() -> Result<()> {
    if std::env::var_os("METAL_SIM_THREADS").is_none() {
        // SAFETY: the program's first statement; there is no other thread yet.
        unsafe { std::env::set_var("METAL_SIM_THREADS", THREADS) };
    }
    let device = Device::by_name("MTL0")?;
    if !device.is_simulated() {
        println!(
            "{} is no simulated device: nothing to measure",
            device.name()
        );
        return Ok(());
    }
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    let mut group = criterion.benchmark_group("simulator");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(2 * (SIDE * SIDE * SIDE) as u64));
    let (half, float) = ("kernel_mul_mm_f32_f32", "kernel_mul_mm_f32_f32_fp32");
    time(&mut group, "MUL_MAT", half, mul_mat(device)?)?;
    time(
        &mut group,
        "OUT_PROD",
        half,
        out_prod(device, Staging::Half)?,
    )?;
    time(
        &mut group,
        "OUT_PROD",
        float,
        out_prod(device, Staging::Float)?,
    )?;
    group.finish();
    criterion.final_summary();
    Ok(())
}
