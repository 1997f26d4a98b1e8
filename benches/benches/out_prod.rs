//! OUT_PROD on the CPU: ours, upstream's kernel, and with the feature `openblas` the sgemm of the machine's OpenBLAS, through device
//! BLAS. Criterion runs one after the other; `backend-ops perf -o OUT_PROD --set blas` lets them take turns, for their ratio.
//!
//! `cargo bench -p ggml-rs-benches --bench out_prod --features openblas`

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, Throughput};
use ggml_rs::DType::{F32, Q4_K};
use ggml_rs::{DType, Device, Staging};
use ggml_rs_benches::OutProd;

/// A cube, a LoRA adapter's product and its gradient, and the gradient that passes a weight.
const SHAPES: [(DType, [usize; 3]); 4] = [
    (F32, [1024, 1024, 1024]),
    (F32, [4096, 1024, 16]),
    (F32, [4096, 16, 1024]),
    (Q4_K, [1024, 256, 1024]),
];

#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    device: Device,
    reference: bool,
}

fn arms() -> Result<Vec<Arm>> {
    let arm = |name, device, reference| Arm {
        name,
        device,
        reference,
    };
    let cpu = Device::cpu()?;
    let mut arms = vec![arm("ours", cpu, false), arm("upstream", cpu, true)];
    if cfg!(feature = "openblas") {
        arms.push(arm("openblas", Device::by_name("BLAS")?, false));
    }
    Ok(arms)
}

fn time(criterion: &mut Criterion, threads: usize) -> Result<()> {
    let mut group = criterion.benchmark_group(format!("out_prod_{threads}_threads"));
    for (weight, [m, n, k]) in SHAPES {
        let shape = OutProd { weight, m, n, k };
        // A multiply-add counts as two operations.
        group.throughput(Throughput::Elements(2 * shape.multiply_adds()));
        for arm in arms()? {
            // BLAS takes floats only.
            if arm.name == "openblas" && weight != F32 {
                continue;
            }
            let mut prepared = shape.prepare(arm.device, Staging::Float)?;
            prepared.backend.set_threads(threads)?;
            if arm.reference {
                prepared.backend.set_reference(true)?;
            }
            group.bench_function(BenchmarkId::new(arm.name, shape), |bencher| {
                bencher.iter(|| prepared.run().expect("ran before"));
            });
        }
    }
    group.finish();
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    for threads in [1, 2] {
        time(&mut criterion, threads)?;
    }
    criterion.final_summary();
    Ok(())
}
