//! Conversion between f32 and the quantized types, in values a second. All threads are used where there are rows enough.
//!
//! `cargo bench -p ggml-rs-benches --bench quantize`

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, Throughput};
use ggml_rs::DType;
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs_benches::ramp;

/// A weight of a small model: 1024 rows of 1024.
const ROW: usize = 1024;
const ROWS: usize = 1024;

/// Rows of the types that search a grid for each block, and take seconds for the whole weight.
const FEW_ROWS: usize = 32;

/// One of each way of storing values. The last two search.
const TYPES: [(DType, usize); 9] = [
    (DType::F16, ROWS),
    (DType::BF16, ROWS),
    (DType::Q8_0, ROWS),
    (DType::Q4_0, ROWS),
    (DType::Q4_K, ROWS),
    (DType::Q6_K, ROWS),
    (DType::MXFP4, ROWS),
    (DType::IQ4_XS, FEW_ROWS),
    (DType::IQ2_XXS, FEW_ROWS),
];

fn main() -> Result<()> {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let values = ramp(ROW * ROWS);
    let mut group = criterion.benchmark_group("quantize");
    for (dtype, rows) in TYPES {
        let values = &values[..rows * ROW];
        group.throughput(Throughput::Elements(values.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(dtype), |bencher| {
            bencher.iter(|| quantize(dtype, values, ROW).expect("whole rows of finite values"));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("dequantize");
    for (dtype, rows) in TYPES {
        let bytes = quantize(dtype, &values[..rows * ROW], ROW)?;
        group.throughput(Throughput::Elements((rows * ROW) as u64));
        group.bench_function(BenchmarkId::from_parameter(dtype), |bencher| {
            bencher.iter(|| dequantize(dtype, &bytes).expect("whole blocks"));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
