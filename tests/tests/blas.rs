//! Device BLAS, where the machine has OpenBLAS: `cargo test -p ggml-rs-tests --features blas --test blas`.
#![cfg(all(feature = "blas", not(target_os = "macos")))]

use ggml_rs_tests::backend_ops;

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
