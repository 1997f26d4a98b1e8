//! The simulated Metal device through the safe API. What the kernels compute is backend-ops' subject; here it
//! is that the device is found, named for what it is, traced, and kept apart from real ones.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use ggml_rs::DType::{F16, F32, I32, Q4_K, Q8_0};
use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::trace::Dispatch;
use ggml_rs::{Device, Error, Graph, Placement, Plan, PlanOptions, Result, Route, Staging, Tensor};

use crate::common::{Operand, repeated, traced};

/// Runs a product of two operands, each in a buffer of its own.
fn run(
    a: &Operand,
    b: &Operand,
    product: impl for<'g> Fn(Tensor<'g>, Tensor<'g>) -> Result<Tensor<'g>>,
) -> (Vec<f32>, Vec<Dispatch>) {
    let (graph, (a_in, b_in, y)) = Graph::build(|g| {
        let (left, a_in) = g.input("a", a.dtype, a.shape)?;
        let (right, b_in) = g.input("b", b.dtype, b.shape)?;
        Ok((a_in, b_in, g.output("y", product(left, right)?)?))
    })
    .unwrap();
    let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
    let placement = Placement::Separate {
        sentinel_bytes: 4096,
    };
    let mut plan = Plan::new(graph, &backend, PlanOptions { placement }).unwrap();
    plan.set_f32(&a_in, &a.values).unwrap();
    plan.set_f32(&b_in, &b.values).unwrap();
    let dispatches = plan.run_with(&mut backend, traced()).unwrap().dispatches;
    plan.check_sentinels().unwrap();
    (plan.read_f32(&y).unwrap(), dispatches)
}

fn out_prod(a: &Operand, b: &Operand, staging: Staging) -> (Vec<f32>, Vec<Dispatch>) {
    run(a, b, |a, b| a.out_prod(b)?.set_staging(staging))
}

/// On the direct route, with the operands where they are: `b` transposed.
fn direct_out_prod(a: &Operand, b: &Operand) -> (Vec<f32>, Vec<Dispatch>) {
    run(a, b, |a, b| {
        a.out_prod(b.transpose()?)?.set_route(Route::Direct)
    })
}

#[test]
fn out_prod_is_right_on_its_direct_route_and_is_one_kernel() {
    for (dtype, kernel) in [(F32, "f32"), (F16, "f16"), (Q8_0, "q8_0"), (Q4_K, "q4_K")] {
        let (a, b) = (
            Operand::new(dtype, &[256, 33], 1),
            Operand::new(F32, &[33, 17], 2),
        );
        let left = a.rounded();
        let expected = reference::out_prod(
            Values::contiguous(&left, a.shape.ne()).unwrap(),
            Values::contiguous(&b.values, b.shape.ne())
                .unwrap()
                .transposed(),
        )
        .unwrap();
        let (got, dispatches) = direct_out_prod(&a, &b);
        let found = compare(&expected, &got).unwrap();
        assert!(found.within(1e-10), "{dtype}: {found:?}");
        let [only] = &dispatches[..] else {
            panic!("{dispatches:?}");
        };
        let name = format!("kernel_out_prod_{kernel}_f32_checked=1");
        assert_eq!((&only.pipeline, only.threadgroup_bytes), (&name, 12288));
    }
}

/// It has no kernel for that, and takes no other way.
#[test]
fn the_direct_route_refuses_half_staging() {
    let (graph, _) = Graph::build(|g| {
        let (a, _) = g.input("a", F32, [64, 32])?;
        let (b, _) = g.input("b", F32, [32, 32])?;
        let product = a.out_prod(b)?.set_staging(Staging::Half)?;
        g.output("y", product.set_route(Route::Direct)?)
    })
    .unwrap();
    let device = Device::by_name("MTL0").unwrap();
    assert_eq!(device.unsupported(&graph).len(), 1);
    let backend = device.open().unwrap();
    assert!(Plan::new(graph, &backend, PlanOptions::default()).is_err());
}

#[test]
fn routes_are_those_of_the_op() {
    Graph::build(|g| {
        let (a, _) = g.input("a", F32, [64, 32])?;
        let (b, _) = g.input("b", F32, [32, 32])?;
        let (outer, inner) = (a.out_prod(b)?, b.mul_mat(b)?);
        for (node, route) in [
            (outer, Route::MatVec),
            (inner, Route::Direct),
            (a, Route::Auto),
        ] {
            assert!(matches!(node.set_route(route), Err(Error::Param(_))));
        }
        outer.set_route(Route::Auto)?;
        inner.set_route(Route::MatVec)?;
        g.output("outer", outer)?;
        g.output("inner", inner)
    })
    .unwrap();
}

fn products(dispatches: &[Dispatch]) -> Vec<&Dispatch> {
    dispatches
        .iter()
        .filter(|dispatch| dispatch.pipeline.starts_with("kernel_mul_mm"))
        .collect()
}

#[test]
fn the_device_says_that_it_is_simulated_and_is_never_the_best() {
    let device = Device::by_name("MTL0").unwrap();
    assert!(device.is_metal() && device.is_simulated());
    assert!(device.description().contains("simulated"));
    assert!(!Device::best().unwrap().is_simulated());
    assert_eq!(device.tensor_api(), Some(false));
}

#[test]
fn out_prod_is_right_and_its_product_is_staged_as_asked() {
    for dtype in [F32, F16, Q8_0, Q4_K] {
        let (a, b) = (
            Operand::new(dtype, &[256, 33], 1),
            Operand::new(F32, &[17, 33], 2),
        );
        let left = a.rounded();
        let expected = reference::out_prod(
            Values::contiguous(&left, a.shape.ne()).unwrap(),
            Values::contiguous(&b.values, b.shape.ne()).unwrap(),
        )
        .unwrap();

        let (got, dispatches) = out_prod(&a, &b, Staging::Float);
        let found = compare(&expected, &got).unwrap();
        assert!(found.within(1e-10), "{dtype}: {found:?}");
        let products = products(&dispatches);
        assert!(!products.is_empty(), "{dispatches:?}");
        for product in products {
            assert!(
                product.pipeline.starts_with("kernel_mul_mm_f32_f32_fp32"),
                "{product:?}"
            );
            assert_eq!(product.threadgroup_bytes, 12288, "{product:?}");
        }
    }
}

#[test]
fn half_staging_runs_another_pipeline_and_rounds() {
    let (a, b) = (
        Operand::new(F32, &[64, 64], 1),
        Operand::new(F32, &[64, 64], 2),
    );
    let expected = reference::out_prod(
        Values::contiguous(&a.values, a.shape.ne()).unwrap(),
        Values::contiguous(&b.values, b.shape.ne()).unwrap(),
    )
    .unwrap();
    let (got, dispatches) = out_prod(&a, &b, Staging::Half);
    assert!(
        products(&dispatches)
            .iter()
            .all(|product| !product.pipeline.contains("_fp32")),
        "{dispatches:?}"
    );
    let nmse = compare(&expected, &got).unwrap().nmse;
    assert!(nmse > 1e-10 && nmse < 1e-6, "{nmse}");
}

#[test]
fn what_no_kernel_takes_is_refused() {
    let (graph, _) = Graph::build(|g| {
        let (b, _) = g.input("b", I32, [8])?;
        g.output("copy", b.cpy(g.empty("c", F16, [8])?)?)
    })
    .unwrap();
    let refused = Device::by_name("MTL0").unwrap().unsupported(&graph);
    let ops: Vec<_> = refused.iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["CPY"]);
}

#[test]
fn a_graph_runs_so_many_times_over_as_one() {
    use ggml_rs::sim::Counters;

    let device = Device::by_name("MTL0").unwrap();
    let (graph, (x_in, y)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [64])?;
        Ok((x_in, g.output("y", x.scale(2.0)?.relu()?)?))
    })
    .unwrap();
    let mut backend = device.open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&x_in, &[3.0; 64]).unwrap();
    // Other runs of this process count too, but never while this one does: runs on the simulated device take turns.
    let dispatched = |trace: Vec<Dispatch>| trace.len();
    let once = dispatched(plan.run_with(&mut backend, traced()).unwrap().dispatches);
    assert_eq!(once, 2);
    let before = Counters::read(device).unwrap().dispatches;
    plan.run_with(&mut backend, repeated(3)).unwrap();
    plan.run_with(&mut backend, repeated(3)).unwrap();
    plan.run_with(&mut backend, repeated(5)).unwrap();
    let after = Counters::read(device).unwrap().dispatches;
    assert!(after - before >= 11 * once as u64, "{before} to {after}");
    assert_eq!(plan.read_f32(&y).unwrap(), [6.0; 64]);
    // No graph has room for so many nodes, and some of the counts would end the process.
    for times in [1 << 40, usize::MAX] {
        assert!(
            plan.run_with(&mut backend, repeated(times)).is_err(),
            "{times}"
        );
    }
    let refused = plan.run_with(&mut backend, repeated(0)).unwrap_err();
    assert!(refused.to_string().contains("0 times"), "{refused}");
}
