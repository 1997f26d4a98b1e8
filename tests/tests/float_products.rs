//! Every float-staged kernel, with every type of weights that has one, on the Metal device (real on macOS, simulated
//! elsewhere): results that lose nothing, from the kernels that were asked for.

use ggml_rs_tests::{Run, backend_ops};

fn float(args: &[&str]) -> Run {
    let fixed = [
        "test",
        "--set",
        "quick",
        "--staging",
        "float",
        "--require",
        "MTL0",
    ];
    backend_ops(
        env!("CARGO_BIN_EXE_backend-ops-under-test"),
        &[&fixed, args].concat(),
    )
    .expect("backend-ops starts")
}

/// Each case holds its error to 1e-12 under this staging, and asserts its kernel's name and threadgroup memory.
#[track_caller]
fn assert_all_pass(run: &Run, at_least: usize) {
    let (passed, ran) = run.tally().unwrap_or_default();
    assert!(
        run.status.success() && passed == ran && ran >= at_least,
        "{}",
        run.transcript()
    );
}

#[test]
fn nothing_is_lost_in_the_simdgroup_kernels() {
    let run = float(&["-o", "MUL_MAT,MUL_MAT_ID", "--tensor", "off"]);
    assert_all_pass(&run, 100);
}

#[test]
fn nothing_is_lost_in_the_tensor_kernels() {
    let run = float(&["-o", "MUL_MAT,MUL_MAT_ID", "--tensor", "on"]);
    if run.lacks_tensor_api() {
        return;
    }
    assert_all_pass(&run, 100);
    assert!(
        run.stdout.contains("tensor API: on"),
        "{}",
        run.transcript()
    );
}

/// One operand alone as float, which MUL_MAT_ID has kernels for: right to half's rounding of the other.
#[test]
fn one_operand_alone_has_its_kernels() {
    for staging in ["float-weights", "float-activations"] {
        let run = backend_ops(
            env!("CARGO_BIN_EXE_backend-ops-under-test"),
            &[
                "test",
                "--set",
                "quick",
                "-o",
                "MUL_MAT_ID",
                "--staging",
                staging,
                "--require",
                "MTL0",
            ],
        )
        .expect("backend-ops starts");
        assert_all_pass(&run, 35);
    }
}
