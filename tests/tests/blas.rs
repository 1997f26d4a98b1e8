//! Device BLAS, where the machine has OpenBLAS: `cargo test -p ggml-rs-tests --features blas --test blas`.
#![cfg(all(feature = "blas", not(target_os = "macos")))]

use std::ffi::c_int;

use ggml_rs::DType::F32;
use ggml_rs::{Device, Graph, Plan, PlanOptions};
use ggml_rs_tests::backend_ops;

unsafe extern "C" {
    /// OpenBLAS's, whose setting is one for the whole process. No other test of this file computes in it.
    safe fn openblas_get_num_threads() -> c_int;
}

/// It takes large products of matrices and nothing else.
#[test]
fn what_the_blas_backend_takes_it_computes() {
    let args = [
        "test",
        "-b",
        "BLAS",
        "--require",
        "BLAS",
        "-o",
        "OUT_PROD,MUL_MAT",
    ];
    let run = backend_ops(env!("CARGO_BIN_EXE_backend-ops-under-test"), &args);
    let run = run.expect("backend-ops starts");
    assert_eq!(run.status.code(), Some(0), "{}", run.transcript());
    let (passed, ran) = run.tally().expect("a tally");
    assert!(passed == ran && ran >= 100, "{passed} of {ran}");
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
