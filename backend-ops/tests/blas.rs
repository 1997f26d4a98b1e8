//! What no case shows of device BLAS, where the machine has OpenBLAS: `cargo test -p backend-ops --features blas --test blas`.
#![cfg(all(feature = "blas", not(target_os = "macos")))]

use std::ffi::c_int;

use ggml_rs::DType::F32;
use ggml_rs::{Device, Graph, Plan, PlanOptions};

unsafe extern "C" {
    /// OpenBLAS's, whose setting is one for the whole process. No other test of this file computes in it.
    safe fn openblas_get_num_threads() -> c_int;
}

/// Fails without patch 0046: OpenBLAS is not told, and keeps what it started with.
#[test]
fn out_prod_takes_as_many_threads_as_it_is_told() {
    let (graph, x) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [64, 64])?;
        g.output("y", x.out_prod(x)?)?;
        Ok(x_in)
    })
    .expect("a graph");
    let mut backend = Device::by_name("BLAS")
        .expect("BLAS")
        .open()
        .expect("opens");
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).expect("plans");
    plan.set_f32(&x, &[1.0; 64 * 64]).expect("set");
    for threads in [1, 2, 1] {
        backend.set_threads(threads).expect("threads");
        plan.run(&mut backend).expect("runs");
        assert_eq!(openblas_get_num_threads(), threads as c_int);
    }
}
