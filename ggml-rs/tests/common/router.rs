//! A mixture's router: does it select the same experts on each route?

use ggml_rs::DType::F32;
use ggml_rs::{Device, Graph, Plan, PlanOptions, Route, Staging};

use super::{Operand, Random, traced};

const K: usize = 4096;
const EXPERTS: usize = 128;
const USED: usize = 8;
const TOKENS: usize = 512;

/// Roughly normal values of rms 1.
fn normal(dims: &[usize], seed: u64, scale: f32) -> Operand {
    let mut operand = Operand::new(F32, dims, 0);
    let mut random = Random::new(seed);
    for value in &mut operand.values {
        // Twelve uniform values: variance 1.
        *value = ((0..12).map(|_| random.unit()).sum::<f32>() - 6.0) * scale;
    }
    operand
}

/// The logits, all from kernels whose names begin like this.
fn logits(
    device: Device,
    [weights, tokens]: [&Operand; 2],
    staging: Staging,
    route: Route,
    kernel: &str,
) -> Vec<f32> {
    let (graph, (a_in, b_in, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("router", F32, weights.shape)?;
        let (b, b_in) = g.input("tokens", F32, tokens.shape)?;
        let product = a.mul_mat(b)?.set_staging(staging)?.set_route(route)?;
        Ok((a_in, b_in, g.output("logits", product)?))
    })
    .unwrap();
    let mut backend = device.open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in, &weights.values).unwrap();
    plan.set_f32(&b_in, &tokens.values).unwrap();
    let dispatches = plan.run_with(&mut backend, traced()).unwrap().dispatches;
    let all_are = dispatches.iter().all(|d| d.pipeline.starts_with(kernel));
    assert!(all_are && !dispatches.is_empty(), "{dispatches:?}");
    plan.read_f32(&y).unwrap()
}

/// The experts of largest logit, per row of logits.
fn selections(logits: &[f32]) -> Vec<Vec<usize>> {
    let pick = |row: &[f32]| {
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|&i, &j| row[j].total_cmp(&row[i]));
        order.truncate(USED);
        order.sort_unstable();
        order
    };
    logits.chunks(EXPERTS).map(pick).collect()
}

fn changed(logits: &[f32], others: &[f32]) -> usize {
    let pairs = selections(logits).into_iter().zip(selections(others));
    pairs.filter(|(a, b)| a != b).count()
}

/// Batched and float-staged, a router selects the experts that the mat-vec kernels select.
pub fn check(device: Device) {
    let weights = normal(&[K, EXPERTS], 11, 1.0 / (K as f32).sqrt());
    let tokens = normal(&[K, TOKENS], 12, 1.0);
    let run = |staging, route, kernel| logits(device, [&weights, &tokens], staging, route, kernel);
    let vector = run(Staging::Float, Route::MatVec, "kernel_mul_mv_f32_f32");
    let float = run(Staging::Float, Route::Auto, "kernel_mul_mm_f32_f32_fp32");
    let half = run(Staging::Half, Route::Auto, "kernel_mul_mm_f32_f32_bci");

    let (by_float, by_half) = (changed(&vector, &float), changed(&vector, &half));
    let differences = float.iter().zip(&vector).map(|(a, b)| (a - b).abs());
    println!(
        "{}, tensor API {:?}, seeds 11 and 12: of {TOKENS} rows float staging changes {by_float}, half staging {by_half}; \
         largest difference of a float-staged logit {:e}",
        device.description(),
        device.tensor_api(),
        differences.fold(0.0, f32::max)
    );
    assert_eq!(by_float, 0);
    // Otherwise the count above would prove nothing.
    assert!(by_half > 0, "half staging changes no row");
}
