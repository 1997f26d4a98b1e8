//! A device that cannot create the float-staged kernels: products take the mat-vec kernels, after one warning. A process of
//! its own, with one test, because the simulated device withholds kernels by an environment variable.
#![cfg(all(feature = "metal-sim", feature = "log", not(target_os = "macos")))]

mod common;

use std::sync::Mutex;

use common::Operand;
use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::{Backend, DType, Device, Graph, Plan, PlanOptions, Staging};

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
    let dispatches = plan.run_traced(backend).unwrap();
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

#[test]
fn without_the_float_staged_kernel_products_take_mat_vec_after_one_warning() {
    // SAFETY: this process has one test, and no other thread uses the environment.
    unsafe { std::env::set_var("METAL_SIM_WITHOUT", "kernel_mul_mm_q8_0_f32_fp32") };
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
    let about_it: Vec<_> = WARNINGS
        .lock()
        .unwrap()
        .iter()
        .filter(|warning| warning.contains("no float-staged kernel"))
        .cloned()
        .collect();
    assert_eq!(about_it.len(), 1, "{about_it:?}");
    assert!(about_it[0].contains("q8_0"), "{about_it:?}");

    // Another type has its kernel.
    let (nmse, pipelines) = product(&mut backend, F32);
    assert!(
        pipelines
            .iter()
            .all(|p| p.starts_with("kernel_mul_mm_f32_f32_fp32")),
        "{pipelines:?}"
    );
    assert!(nmse < 1e-12, "{nmse:e}");
}
