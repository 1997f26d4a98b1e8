//! Files: reading a header with a vocabulary, loading tensors to the CPU, saving them. Bytes a second, from the system's cache.
//!
//! `cargo bench -p ggml-rs-benches --bench gguf_load`

use std::fs::{self, File};
use std::io::BufWriter;

use anyhow::Result;
use criterion::{Criterion, Throughput};
use ggml_rs::files::gguf::{Builder, Gguf};
use ggml_rs::{DType, Device, Params};
use ggml_rs_benches::ramp;

/// As many tokens as a model of today knows.
const TOKENS: usize = 128_000;
/// Of each tensor: 4 MiB of f32.
const SIDE: usize = 1024;
/// Half of them are q8_0.
const TENSORS: usize = 32;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let folder = tempfile::tempdir()?;
    let cpu = Device::cpu()?;
    let params = model(cpu)?;

    let vocabulary = folder.path().join("vocabulary.gguf");
    let tokens: Vec<_> = (0..TOKENS).map(|token| format!("token {token}")).collect();
    let builder = Builder::new()
        .set("tokens", tokens)?
        .set("scores", ramp(TOKENS))?;
    fs::write(&vocabulary, builder.begin(Vec::new())?.finish()?)?;
    let mut group = criterion.benchmark_group("gguf_header");
    group.throughput(Throughput::Bytes(fs::metadata(&vocabulary)?.len()));
    group.bench_function("128000 tokens", |bencher| {
        bencher.iter(|| Gguf::open(&vocabulary).expect("written above"));
    });
    group.finish();

    let path = folder.path().join("model.gguf");
    let save = || -> Result<()> {
        Builder::new().save(BufWriter::new(File::create(&path)?), params.iter())?;
        Ok(())
    };
    save()?;
    let mut group = criterion.benchmark_group("gguf_tensors");
    group.throughput(Throughput::Bytes(fs::metadata(&path)?.len()));
    let mut file = Gguf::open(&path)?;
    // Into parameters that exist, then with memory asked for as well.
    let loaded = file.load(cpu)?;
    group.bench_function("load_into", |bencher| {
        bencher.iter(|| file.load_into(&loaded).expect("loaded before"));
    });
    group.bench_function("load", |bencher| {
        bencher.iter(|| file.load(cpu).expect("loaded before"));
    });
    group.bench_function("save", |bencher| {
        bencher.iter(|| save().expect("saved before"));
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn model(device: Device) -> Result<Params> {
    let builder = (0..TENSORS).try_fold(Params::builder(), |builder, index| {
        let dtype = [DType::F32, DType::Q8_0][index % 2];
        builder.tensor(&format!("blk.{index}.weight"), dtype, [SIDE, SIDE])
    })?;
    let params = builder.allocate(device)?;
    let values = ramp(SIDE * SIDE);
    params.iter().try_for_each(|param| param.set_f32(&values))?;
    Ok(params)
}
