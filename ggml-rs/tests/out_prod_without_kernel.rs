//! A device that cannot create OUT_PROD's direct kernel refuses the node: it never takes the other route instead. A process of its
//! own, with one test, because the simulated device withholds kernels by an environment variable.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::{DType, Device, Graph, Plan, PlanOptions, Route};

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
    // SAFETY: this process has one test, and no other thread uses the environment.
    unsafe { std::env::set_var("METAL_SIM_WITHOUT", "kernel_out_prod_q8_0") };
    let refused = plan(Q8_0, Route::Direct).expect_err("it has no kernel");
    assert!(refused.to_string().contains("OUT_PROD"), "{refused}");
    plan(Q8_0, Route::Auto).unwrap();
    plan(F32, Route::Direct).unwrap();
}
