//! What the device tells of an OUT_PROD without a run at full size.

use ggml_rs::{DType, Plan, PlanOptions};

use super::built;
use crate::cases::OutProd;
use crate::engine::runner::{Target, generate, run_traced};
use crate::modes::perf::Arm;
use crate::modes::perf::measure::plan;
use crate::modes::perf::work::{is_product, short};

/// m, n and k of a run of whole tiles, as every case of the table is: the same kernel.
const SMALL: [usize; 3] = [256, 128, 64];

/// The pipeline of the product and its threadgroup memory, as a small run dispatches it.
///
/// # Errors
/// When it does not run, or dispatches no product.
pub fn product(
    weights: DType,
    arm: Arm,
    target: &mut Target,
    seed: u64,
) -> Result<(String, usize), String> {
    let small = OutProd::new(weights, DType::F32, SMALL);
    let dispatches = dispatches(&small, arm, target, seed).map_err(|error| error.to_string())?;
    let product = dispatches.iter().find(|dispatch| is_product(dispatch));
    let product = product.ok_or("no batched product was dispatched")?;
    let name = short(&product.pipeline).to_owned();
    Ok((name, product.threadgroup_bytes))
}

fn dispatches(
    case: &OutProd,
    arm: Arm,
    target: &mut Target,
    seed: u64,
) -> ggml_rs::Result<Vec<ggml_rs::trace::Dispatch>> {
    let built = built(case, arm)?;
    let data = generate(case, seed)?;
    let mut plan = plan(built.graph, &built.inputs, &data, target.backend()?)?;
    run_traced(&mut plan, target)
}

/// Bytes of device memory that a case takes, scratch included. Nothing is allocated.
///
/// # Errors
/// When the device does not run it.
pub fn held(case: &OutProd, arm: Arm, target: &mut Target) -> ggml_rs::Result<usize> {
    let built = built(case, arm)?;
    let uses = Plan::measure(&built.graph, target.backend()?, PlanOptions::default())?;
    Ok(uses.iter().map(|used| used.tensors).sum())
}
