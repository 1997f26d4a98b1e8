//! Metal's tensor API on the simulated device, switched on before the device exists. A process of its own, with
//! one test, because the switch is an environment variable.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

mod common;

use common::Operand;
use ggml_rs::DType::F32;
use ggml_rs::{Device, Graph, Plan, PlanOptions, RegistryOptions};

#[test]
fn the_tensor_kernel_runs_instead_of_the_float_staged_one() {
    let mut options = RegistryOptions::default();
    options.tensor_api = Some(true);
    // SAFETY: this process has one test, and no other thread uses the environment.
    unsafe { options.install() }.unwrap();
    let device = Device::by_name("MTL0").unwrap();
    assert_eq!(device.tensor_api(), Some(true));

    let (a, b) = (
        Operand::new(F32, &[64, 32], 1),
        Operand::new(F32, &[32, 32], 2),
    );
    let (graph, (a_in, b_in)) = Graph::build(|g| {
        let (left, a_in) = g.input("a", a.dtype, a.shape)?;
        let (right, b_in) = g.input("b", b.dtype, b.shape)?;
        g.output("y", left.out_prod(right)?)?;
        Ok((a_in, b_in))
    })
    .unwrap();
    let mut backend = device.open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in, &a.values).unwrap();
    plan.set_f32(&b_in, &b.values).unwrap();
    let dispatches = plan.run_traced(&mut backend).unwrap();
    let product = dispatches
        .iter()
        .find(|dispatch| dispatch.pipeline.starts_with("kernel_mul_mm"));
    assert!(
        product.is_some_and(|product| !product.pipeline.contains("_fp32")),
        "{dispatches:?}"
    );
}
