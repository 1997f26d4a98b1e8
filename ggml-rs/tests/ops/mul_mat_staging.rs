//! What MUL_MAT's source precision, staging and route do on the simulated device.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use ggml_rs::DType::{self, BF16, F16, F32, Q4_K, Q8_0};
use ggml_rs::check::reference::{self, Values};
use ggml_rs::check::{Comparison, compare};
use ggml_rs::{Device, Error, Graph, Plan, PlanOptions, Precision, Result, Route, Staging, Tensor};

use crate::common::{self, Operand, traced};

/// A product of `a` and `b` on the simulated device, set up by `choose`: its values and the pipelines it dispatched.
fn mul_mat(
    a: &Operand,
    b: &Operand,
    choose: impl for<'g> FnOnce(Tensor<'g>) -> Result<Tensor<'g>>,
) -> Result<(Vec<f32>, Vec<String>)> {
    let (graph, (a_in, b_in, y)) = Graph::build(|g| {
        let (left, a_in) = g.input("a", a.dtype, a.shape)?;
        let (right, b_in) = g.input("b", b.dtype, b.shape)?;
        let y = g.output("y", choose(left.mul_mat(right)?)?)?;
        Ok((a_in, b_in, y))
    })?;
    let mut backend = Device::by_name("MTL0")?.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    plan.set_f32(&a_in, &a.values)?;
    plan.set_f32(&b_in, &b.values)?;
    let dispatches = plan.run_with(&mut backend, traced())?.dispatches;
    let pipelines = dispatches.into_iter().map(|d| d.pipeline).collect();
    Ok((plan.read_f32(&y)?, pipelines))
}

fn against_f64(a: &Operand, b: &Operand, got: &[f32]) -> Comparison {
    let (left, right) = (a.rounded(), b.rounded());
    let left = Values::contiguous(&left, a.shape.ne()).unwrap();
    let right = Values::contiguous(&right, b.shape.ne()).unwrap();
    compare(&reference::mul_mat(left, right).unwrap(), got).unwrap()
}

fn beyond_half(dtype: DType, dims: &[usize], seed: u64) -> Operand {
    let mut operand = Operand::new(dtype, dims, seed);
    operand.values.iter_mut().for_each(|value| *value *= 1.5e5);
    operand
}

/// Every kernel that a number of rows leads to takes operands beyond 65504 when float is asked for.
#[test]
fn float_operands_may_exceed_half_on_every_route() {
    for dtype in [F32, BF16, Q8_0] {
        for rows in [1, 4, 8, 12, 31, 32, 100] {
            let (a, b) = (
                beyond_half(dtype, &[128, 40], 1),
                beyond_half(F32, &[128, rows], 2),
            );
            let (got, pipelines) = mul_mat(&a, &b, |y| y.set_staging(Staging::Float)).unwrap();
            let found = against_f64(&a, &b, &got);
            assert!(
                found.within(1e-12),
                "{dtype} with {rows} rows by {pipelines:?}: {found:?}"
            );
            let batched = pipelines.iter().any(|p| p.starts_with("kernel_mul_mm"));
            assert_eq!(batched, rows >= 32, "{pipelines:?}");
        }
    }
}

#[test]
fn half_staging_loses_them() {
    let (a, b) = (
        Operand::new(F32, &[128, 64], 1),
        beyond_half(F32, &[128, 64], 2),
    );
    let (got, _) = mul_mat(&a, &b, |y| y.set_staging(Staging::Half)).unwrap();
    assert!(against_f64(&a, &b, &got).mismatch.is_some());
    let (default, _) = mul_mat(&a, &b, |y| Ok(y)).unwrap();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&got), bits(&default), "half is the default");
}

/// One operand's source precision above half is enough, as nothing converts one operand alone.
#[test]
fn a_precision_above_half_of_either_operand_stages_both_in_float() {
    let (a, b) = (
        Operand::new(Q4_K, &[256, 64], 1),
        Operand::new(F32, &[256, 32], 2),
    );
    for (precision, float) in [
        (Precision::F32, true),
        (Precision::Bf16, true),
        (Precision::F16, false),
        (Precision::Q8, false),
        (Precision::Undefined, false),
    ] {
        for source in [0, 1] {
            let (got, pipelines) =
                mul_mat(&a, &b, |y| y.set_src_precision(precision, source)).unwrap();
            let name = if float {
                "kernel_mul_mm_q4_K_f32_fp32_bci"
            } else {
                "kernel_mul_mm_q4_K_f32_bci"
            };
            assert!(
                pipelines.iter().any(|p| p.starts_with(name)),
                "{precision:?} of {source}: {pipelines:?}"
            );
            let nmse = against_f64(&a, &b, &got).nmse;
            assert_eq!(nmse < 1e-12, float, "{precision:?} of {source}: {nmse:e}");
        }
    }
}

/// There are no float-staged kernels for f16 activations: they are exact in half, but weights are not.
#[test]
fn float_weights_with_f16_activations_are_refused_unless_they_are_f16() {
    let product = |dtype| {
        let (a, b) = (
            Operand::new(dtype, &[128, 64], 1),
            Operand::new(F16, &[128, 32], 2),
        );
        mul_mat(&a, &b, |y| y.set_staging(Staging::Float))
            .map(|(got, _)| against_f64(&a, &b, &got).nmse)
    };
    assert!(matches!(product(Q8_0), Err(Error::Unsupported(_))));
    assert!(matches!(product(F32), Err(Error::Unsupported(_))));
    assert!(product(F16).unwrap() < 1e-12);
}

#[test]
fn the_batched_router_selects_what_mat_vec_selects() {
    common::router::check(Device::by_name("MTL0").unwrap());
}

#[test]
fn settings_belong_to_their_ops() {
    let (a, b) = (
        Operand::new(F32, &[64, 8], 1),
        Operand::new(F32, &[64, 8], 2),
    );
    for staging in [Staging::FloatWeights, Staging::FloatActivations] {
        let error = mul_mat(&a, &b, |y| y.set_staging(staging)).unwrap_err();
        assert!(matches!(error, Error::Param(_)), "{error}");
    }
    let error = mul_mat(&a, &b, |y| y.scale(1.0)?.set_route(Route::Auto)).unwrap_err();
    assert!(error.to_string().contains("only a mul_mat"), "{error}");
}
