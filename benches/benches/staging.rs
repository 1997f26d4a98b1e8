//! OUT_PROD: on the CPU, and on Metal with float against half staging, side by side.
//!
//! On the simulated device time says nothing about a GPU, so counters stand in its place: what a kernel does, not how long
//! it takes. `cargo bench -p ggml-rs-benches --bench staging`

use anyhow::{Context, Result};
use criterion::{BenchmarkId, Criterion, Throughput};
use ggml_rs::sim::Counters;
use ggml_rs::{DType, Device, RunOptions, Staging};
use ggml_rs_benches::OutProd;

const CPU: &[OutProd] = &[
    OutProd {
        weight: DType::F32,
        m: 512,
        n: 512,
        k: 512,
    },
    OutProd {
        weight: DType::F32,
        m: 1024,
        n: 1024,
        k: 16,
    },
    OutProd {
        weight: DType::Q4_K,
        m: 1024,
        n: 64,
        k: 1024,
    },
];

/// A weight of a small model with 1024 tokens, twice, then a LoRA adapter and a ragged one.
const METAL: &[OutProd] = &[
    OutProd {
        weight: DType::Q4_K,
        m: 1536,
        n: 1024,
        k: 1536,
    },
    OutProd {
        weight: DType::F32,
        m: 1536,
        n: 1024,
        k: 1536,
    },
    OutProd {
        weight: DType::F32,
        m: 1024,
        n: 16,
        k: 512,
    },
    OutProd {
        weight: DType::F32,
        m: 1000,
        n: 30,
        k: 500,
    },
];

const STAGINGS: [(&str, Staging); 2] = [("float", Staging::Float), ("half", Staging::Half)];

fn time(
    criterion: &mut Criterion,
    group: &str,
    shapes: &[OutProd],
    device: Device,
    arms: &[(&str, Staging)],
) -> Result<()> {
    let mut group = criterion.benchmark_group(group);
    for shape in shapes {
        // A multiply-add counts as two operations.
        group.throughput(Throughput::Elements(2 * shape.multiply_adds()));
        for (arm, staging) in arms {
            let mut prepared = shape.prepare(device, *staging)?;
            group.bench_function(BenchmarkId::new(*arm, shape), |bencher| {
                bencher.iter(|| prepared.run().expect("ran before"));
            });
        }
    }
    group.finish();
    Ok(())
}

/// One line per shape and staging: pipelines and counters of a single run.
fn count(device: Device) -> Result<()> {
    println!(
        "\nOUT_PROD on {} ({}): counters of one run, not times\n",
        device.name(),
        device.description()
    );
    println!(
        "{:<26} {:<6} {:<28} {:>10} {:>10} {:>12} {:>12} {:>14}",
        "shape",
        "arm",
        "product's kernel",
        "tg bytes",
        "dispatches",
        "threadgroups",
        "barriers",
        "matrix FMAs"
    );
    let traced = RunOptions {
        trace: true,
        ..RunOptions::default()
    };
    for shape in METAL {
        for (arm, staging) in STAGINGS {
            let mut prepared = shape.prepare(device, staging)?;
            let before = Counters::read(device).context("a simulated device counts")?;
            let report = prepared.plan.run_with(&mut prepared.backend, traced)?;
            let dispatches = report.dispatches;
            let run = Counters::read(device).context("a simulated device counts")? - before;
            let product = dispatches
                .iter()
                .find(|d| d.pipeline.starts_with("kernel_mul_mm"))
                .context("no product")?;
            println!(
                "{:<26} {arm:<6} {:<28} {:>10} {:>10} {:>12} {:>12} {:>14}",
                shape.to_string(),
                product.pipeline.split("_bci").next().unwrap_or_default(),
                product.threadgroup_bytes,
                run.dispatches,
                run.threadgroups,
                run.threadgroup_barriers,
                run.simdgroup_fmas,
            );
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    time(
        &mut criterion,
        "out_prod_cpu",
        CPU,
        Device::cpu()?,
        &[("cpu", Staging::Float)],
    )?;
    match Device::by_name("MTL0") {
        Ok(metal) if metal.is_simulated() => count(metal)?,
        Ok(metal) => time(&mut criterion, "out_prod_metal", METAL, metal, &STAGINGS)?,
        Err(error) => println!("\nNo Metal device, real or simulated: {error}"),
    }
    criterion.final_summary();
    Ok(())
}
