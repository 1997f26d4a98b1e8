//! A device that cannot create the float-staged kernels: products take the mat-vec kernels, after one warning. In a process of
//! its own, because the simulated device withholds kernels by an environment variable, and the logger is the process's.
#![cfg(all(feature = "metal-sim", feature = "log", not(target_os = "macos")))]

use std::sync::Mutex;

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::{Backend, DType, Device, Graph, Plan, PlanOptions, Staging};

use crate::common::child::in_a_child_with;
use crate::common::{Operand, traced};

const WITHHELD: &str = "kernel_mul_mm_q8_0_f32_fp32,kernel_mul_mm_id_q8_0_f32_fp32";

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() == log::Level::Warn {
            WARNINGS.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The NMSE of a float-staged product of 64 rows, and the pipelines it dispatched.
fn product(backend: &mut Backend, dtype: DType) -> (f64, Vec<String>) {
    let (a, b) = (
        Operand::new(dtype, &[256, 40], 1),
        Operand::new(F32, &[256, 64], 2),
    );
    let (graph, (a_in, b_in, y)) = Graph::build(|g| {
        let (left, a_in) = g.input("a", dtype, a.shape)?;
        let (right, b_in) = g.input("b", F32, b.shape)?;
        let y = g.output("y", left.mul_mat(right)?.set_staging(Staging::Float)?)?;
        Ok((a_in, b_in, y))
    })
    .unwrap();
    let mut plan = Plan::new(graph, backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in, &a.values).unwrap();
    plan.set_f32(&b_in, &b.values).unwrap();
    let dispatches = plan.run_with(backend, traced()).unwrap().dispatches;
    let left = a.rounded();
    let expected = reference::mul_mat(
        Values::contiguous(&left, a.shape.ne()).unwrap(),
        Values::contiguous(&b.values, b.shape.ne()).unwrap(),
    )
    .unwrap();
    let nmse = compare(&expected, &plan.read_f32(&y).unwrap())
        .unwrap()
        .nmse;
    (nmse, dispatches.into_iter().map(|d| d.pipeline).collect())
}

/// The same for 40 tokens that use both of two experts.
fn product_with_experts(backend: &mut Backend, staging: Staging) -> (f64, Vec<String>) {
    const TOKENS: usize = 40;
    let (a, b) = (
        Operand::new(Q8_0, &[256, 40, 2], 1),
        Operand::new(F32, &[256, 1, TOKENS], 2),
    );
    let ids = [0, 1].repeat(TOKENS);
    let (graph, (a_in, b_in, ids_in, y)) = Graph::build(|g| {
        let (weights, a_in) = g.input("a", a.dtype, a.shape)?;
        let (tokens, b_in) = g.input("b", F32, b.shape)?;
        let (choice, ids_in) = g.expert_ids("ids", 2, TOKENS, 2)?;
        let product = weights.mul_mat_id(tokens, choice)?;
        let y = g.output("y", product.set_staging(staging)?)?;
        Ok((a_in, b_in, ids_in, y))
    })
    .unwrap();
    let mut plan = Plan::new(graph, backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in, &a.values).unwrap();
    plan.set_f32(&b_in, &b.values).unwrap();
    plan.set_i32(&ids_in, &ids).unwrap();
    let dispatches = plan.run_with(backend, traced()).unwrap().dispatches;
    let left = a.rounded();
    let expected = reference::mul_mat_id(
        Values::contiguous(&left, a.shape.ne()).unwrap(),
        Values::contiguous(&b.values, b.shape.ne()).unwrap(),
        &ids,
    )
    .unwrap();
    let nmse = compare(&expected, &plan.read_f32(&y).unwrap())
        .unwrap()
        .nmse;
    (nmse, dispatches.into_iter().map(|d| d.pipeline).collect())
}

/// The warnings about a kernel that was not there.
fn warnings(op: &str) -> usize {
    let warnings = WARNINGS.lock().unwrap();
    let about_it = format!("no float-staged kernel for {op} with q8_0 weights");
    warnings.iter().filter(|w| w.contains(&about_it)).count()
}

#[test]
fn without_the_float_staged_kernel_products_take_mat_vec_after_one_warning() {
    in_a_child_with(
        "mul_mat_fallback::without_the_float_staged_kernel_products_take_mat_vec_after_one_warning",
        &[("METAL_SIM_WITHOUT", WITHHELD)],
        || {
            log::set_logger(&Capture).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
            let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();

            for _ in 0..3 {
                let (nmse, pipelines) = product(&mut backend, Q8_0);
                assert!(
                    pipelines
                        .iter()
                        .all(|p| p.starts_with("kernel_mul_mv_q8_0_f32")),
                    "{pipelines:?}"
                );
                assert!(nmse < 1e-12, "{nmse:e}");
            }
            assert_eq!(warnings("MUL_MAT"), 1);

            for _ in 0..3 {
                let (nmse, pipelines) = product_with_experts(&mut backend, Staging::Float);
                assert!(
                    pipelines
                        .iter()
                        .all(|p| p.starts_with("kernel_mul_mv_id_q8_0_f32")),
                    "{pipelines:?}"
                );
                assert!(nmse < 1e-12, "{nmse:e}");
            }
            assert_eq!(warnings("MUL_MAT_ID"), 1);
            // Another staging has its kernel.
            let (nmse, pipelines) = product_with_experts(&mut backend, Staging::FloatWeights);
            assert!(
                pipelines
                    .iter()
                    .any(|p| p.starts_with("kernel_mul_mm_id_q8_0_f32_fp32_src0")),
                "{pipelines:?}"
            );
            assert!(nmse > 1e-12 && nmse < 1e-6, "{nmse:e}");

            // Another type has its kernel.
            let (nmse, pipelines) = product(&mut backend, F32);
            assert!(
                pipelines
                    .iter()
                    .all(|p| p.starts_with("kernel_mul_mm_f32_f32_fp32")),
                "{pipelines:?}"
            );
            assert!(nmse < 1e-12, "{nmse:e}");
        },
    );
}
