//! Metal's tensor API on the simulated device, switched on before the device exists. In a process of its own,
//! because the switch is an environment variable.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use ggml_rs::DType::{self, BF16, F32, Q8_0};
use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::sim::Counters;
use ggml_rs::trace::Dispatch;
use ggml_rs::{Backend, Device, Graph, Plan, PlanOptions, RegistryOptions, Staging};

use crate::common::child::in_a_child;
use crate::common::{self, Operand, traced};

/// What one product did.
struct Run {
    product: Dispatch,
    /// Multiply-adds in which the real device may round float operands.
    relaxed_fmas: u64,
    nmse: f64,
}

/// Which op to run: both multiply [64, 64] weights of `dtype` with [64, 32] floats.
#[derive(Clone, Copy)]
enum Op {
    OutProd,
    MulMat(DType),
}

fn run(device: Device, backend: &mut Backend, op: Op, staging: Staging) -> Run {
    let dtype = match op {
        Op::OutProd => F32,
        Op::MulMat(dtype) => dtype,
    };
    let a = Operand::new(dtype, &[64, 64], 1);
    let b = match op {
        Op::OutProd => Operand::new(F32, &[32, 64], 2),
        Op::MulMat(_) => Operand::new(F32, &[64, 32], 2),
    };
    let (graph, (a_in, b_in, y)) = Graph::build(|g| {
        let (left, a_in) = g.input("a", a.dtype, a.shape)?;
        let (right, b_in) = g.input("b", b.dtype, b.shape)?;
        let product = match op {
            Op::OutProd => left.out_prod(right)?,
            Op::MulMat(_) => left.mul_mat(right)?,
        };
        let y = g.output("y", product.set_staging(staging)?)?;
        Ok((a_in, b_in, y))
    })
    .unwrap();
    let mut plan = Plan::new(graph, backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in, &a.values).unwrap();
    plan.set_f32(&b_in, &b.values).unwrap();
    let before = Counters::read(device).unwrap();
    let dispatches = plan.run_with(backend, traced()).unwrap().dispatches;
    let work = Counters::read(device).unwrap() - before;
    let left = a.rounded();
    let left = Values::contiguous(&left, a.shape.ne()).unwrap();
    let right = Values::contiguous(&b.values, b.shape.ne()).unwrap();
    let expected = match op {
        Op::OutProd => reference::out_prod(left, right),
        Op::MulMat(_) => reference::mul_mat(left, right),
    }
    .unwrap();
    let is_product = |dispatch: &&Dispatch| dispatch.pipeline.starts_with("kernel_mul_mm");
    Run {
        product: dispatches.iter().find(is_product).unwrap().clone(),
        relaxed_fmas: work.relaxed_fmas,
        nmse: compare(&expected, &plan.read_f32(&y).unwrap())
            .unwrap()
            .nmse,
    }
}

#[test]
fn the_tensor_kernel_stages_as_asked_and_relaxes_no_float() {
    in_a_child(
        "tensor_api::the_tensor_kernel_stages_as_asked_and_relaxes_no_float",
        || {
            let mut options = RegistryOptions::default();
            options.tensor_api = Some(true);
            // SAFETY: this process has one test, and no other thread uses the environment.
            unsafe { options.install() }.unwrap();
            let device = Device::by_name("MTL0").unwrap();
            assert_eq!(device.tensor_api(), Some(true));
            let mut backend = device.open().unwrap();

            for (op, kernel) in [
                (Op::OutProd, "kernel_mul_mm_f32_f32"),
                (Op::MulMat(F32), "kernel_mul_mm_f32_f32"),
                (Op::MulMat(BF16), "kernel_mul_mm_bf16_f32"),
                (Op::MulMat(Q8_0), "kernel_mul_mm_q8_0_f32"),
            ] {
                let float = run(device, &mut backend, op, Staging::Float);
                assert!(
                    float
                        .product
                        .pipeline
                        .starts_with(&format!("{kernel}_fp32"))
                );
                assert_eq!(float.product.threadgroup_bytes, 64 * 32 * 4);
                // The descriptor is what keeps the real device from rounding; its effect cannot be simulated.
                assert_eq!(float.relaxed_fmas, 0);
                assert!(float.nmse < 1e-12, "{kernel}: {}", float.nmse);

                let half = run(device, &mut backend, op, Staging::Half);
                assert!(half.product.pipeline.starts_with(kernel));
                assert!(!half.product.pipeline.contains("_fp32"));
                assert_eq!(half.product.threadgroup_bytes, 64 * 32 * 2);
                assert!(half.relaxed_fmas > 0, "upstream's kernel asks for it");
                // What bf16 weights lose to bf16 staging, the simulator does not show: it reads b, unstaged, in full.
                let loses = !matches!(op, Op::MulMat(BF16));
                assert_eq!(
                    half.nmse > 1e-10 && half.nmse < 1e-6,
                    loses,
                    "{kernel}: {}",
                    half.nmse
                );
            }
            common::router::check(device);
        },
    );
}
