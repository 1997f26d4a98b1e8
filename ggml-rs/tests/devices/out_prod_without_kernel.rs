//! A device that cannot create OUT_PROD's direct kernel refuses the node: it never takes the other route instead. In a
//! process of its own, because the simulated device withholds kernels by an environment variable.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::{DType, Device, Graph, Plan, PlanOptions, Route};

use crate::common::child::in_a_child_with;

const WITHHELD: [(&str, &str); 1] = [("METAL_SIM_WITHOUT", "kernel_out_prod_q8_0")];

fn plan(dtype: DType, route: Route) -> ggml_rs::Result<Plan> {
    let (graph, _) = Graph::build(|g| {
        let (a, _) = g.input("a", dtype, [64, 32])?;
        let (b, _) = g.input("b", F32, [32, 32])?;
        g.output("y", a.out_prod(b)?.set_route(route)?)
    })?;
    let backend = Device::by_name("MTL0")?.open()?;
    Plan::new(graph, &backend, PlanOptions::default())
}

#[test]
fn without_its_kernel_the_direct_route_is_refused() {
    in_a_child_with(
        "out_prod_without_kernel::without_its_kernel_the_direct_route_is_refused",
        &WITHHELD,
        || {
            let refused = plan(Q8_0, Route::Direct).expect_err("it has no kernel");
            assert!(refused.to_string().contains("OUT_PROD"), "{refused}");
            plan(Q8_0, Route::Auto).unwrap();
            plan(F32, Route::Direct).unwrap();
        },
    );
}
