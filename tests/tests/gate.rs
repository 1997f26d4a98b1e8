//! The gate on the Metal device (real on macOS, simulated elsewhere): 37/37 with float staging, 33/37 with half.

use ggml_rs_tests::{Run, backend_ops};

fn gate(args: &[&str]) -> Run {
    let fixed = [
        "test",
        "-o",
        "OUT_PROD",
        "--set",
        "gate",
        "-b",
        "MTL0",
        "--require",
        "MTL0",
    ];
    backend_ops(
        env!("CARGO_BIN_EXE_backend-ops-under-test"),
        &[&fixed, args].concat(),
    )
    .expect("backend-ops starts")
}

#[track_caller]
fn assert_ended(run: &Run, tally: (usize, usize), code: i32) {
    assert_eq!(run.tally(), Some(tally), "{}", run.transcript());
    assert_eq!(run.status.code(), Some(code), "{}", run.transcript());
}

#[test]
fn float_staging_passes_all() {
    assert_ended(&gate(&["--tensor", "off"]), (37, 37), 0);
}

#[test]
fn half_staging_fails_exactly_the_four_that_overflow_half() {
    let run = gate(&["--tensor", "off", "--staging", "half"]);
    assert_ended(&run, (33, 37), 1);
    let failures = run.failures();
    assert_eq!(failures.len(), 4, "{}", run.transcript());
    for (case, reason) in failures {
        assert!(case.contains("b_range=150000"), "{case}");
        assert!(
            reason.contains("NaN") || reason.contains("inf"),
            "{case}: {reason}"
        );
    }
}

/// The tensor kernel reads b unstaged, so b_range passes under either staging; set `range` shows what staging does to a.
#[test]
fn the_tensor_kernel_passes_under_either_staging() {
    for staging in ["float", "half"] {
        let run = gate(&["--tensor", "on", "--staging", staging]);
        if run.lacks_tensor_api() {
            return;
        }
        assert_ended(&run, (37, 37), 0);
        assert!(
            run.stdout.contains("tensor API: on"),
            "{}",
            run.transcript()
        );
        assert!(
            run.stdout.contains("reads b in place"),
            "{}",
            run.transcript()
        );
    }
}

/// Without temporaries, in the kernel of simdgroup matrices, whether the tensor API is on or not. That it ran is asserted case
/// by case (`Routing::Direct`). Without the cases of k = 600000 and of 1024 columns, which `.ci/run` runs too.
#[test]
fn the_direct_route_passes_under_either_setting_of_the_tensor_api() {
    for tensor in ["off", "on"] {
        let short = "n=(1|16|32|64),k=(1|16|32|64)";
        let run = gate(&["--tensor", tensor, "--route", "direct", "-p", short]);
        if run.lacks_tensor_api() {
            return;
        }
        assert_ended(&run, (29, 29), 0);
        assert!(run.stdout.contains("route: direct"), "{}", run.transcript());
    }
}

#[test]
fn the_direct_route_has_no_half_staging() {
    let run = gate(&["--route", "direct", "--staging", "half"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.transcript());
    assert!(
        run.stderr.contains("stages in float"),
        "{}",
        run.transcript()
    );
}

#[test]
fn kernels_are_shown_with_their_threadgroup_memory() {
    let run = gate(&["--tensor", "off", "--kernels", "-p", "b_range=150000"]);
    assert_ended(&run, (4, 4), 0);
    let products = run
        .stdout
        .lines()
        .filter(|line| line.contains("kernel_mul_mm_f32_f32_fp32"));
    assert!(
        products
            .filter(|line| line.contains("(12288 threadgroup bytes)"))
            .count()
            >= 4,
        "{}",
        run.transcript()
    );
}
