//! Operands beyond half's range, on the Metal device (real on macOS, simulated elsewhere): float staging takes them all,
//! half staging fails exactly those that overflow in a tile that the kernel stages.

use ggml_rs_tests::{Run, backend_ops};

/// The cases of set `range`.
const CASES: usize = 48;

fn range(args: &[&str]) -> Run {
    let fixed = [
        "test",
        "-o",
        "OUT_PROD",
        "--set",
        "range",
        "--require",
        "MTL0",
    ];
    backend_ops(
        env!("CARGO_BIN_EXE_backend-ops-under-test"),
        &[&fixed, args].concat(),
    )
    .expect("backend-ops starts")
}

/// The value of a field that a case string shows only when it is not 1.
fn field(case: &str, name: &str) -> f64 {
    case.split([',', '('])
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        .map_or(1.0, |value| value.parse().expect("a number"))
}

fn overflows(case: &str, name: &str) -> bool {
    field(case, name) > 65504.0
}

#[track_caller]
fn assert_fails_exactly(run: &Run, expected: usize, overflows: impl Fn(&str) -> bool) {
    assert_eq!(
        run.tally(),
        Some((CASES - expected, CASES)),
        "{}",
        run.transcript()
    );
    let failures = run.failures();
    assert_eq!(failures.len(), expected, "{}", run.transcript());
    for (case, reason) in failures {
        assert!(overflows(case), "{case} does not overflow: {reason}");
    }
}

#[track_caller]
fn assert_tensor_api(run: &Run) {
    let is_on = run.stdout.contains("tensor API: on");
    assert!(is_on, "{}", run.transcript());
}

#[test]
fn float_staging_takes_all_in_the_simdgroup_kernel() {
    assert_fails_exactly(&range(&["--tensor", "off"]), 0, |_| false);
}

#[test]
fn float_staging_takes_all_in_the_tensor_kernel() {
    let run = range(&["--tensor", "on"]);
    if run.lacks_tensor_api() {
        return;
    }
    assert_tensor_api(&run);
    assert_fails_exactly(&run, 0, |_| false);
}

#[test]
fn the_direct_route_takes_all() {
    assert_fails_exactly(&range(&["--route", "direct"]), 0, |_| false);
}

#[test]
fn half_staging_in_the_simdgroup_kernel_fails_what_overflows_on_either_side() {
    let run = range(&["--tensor", "off", "--staging", "half"]);
    assert_fails_exactly(&run, 44, |case| {
        overflows(case, "a_range") || overflows(case, "b_range")
    });
}

/// Upstream's tensor kernel stages a alone, in half, so a weight that overflows is lost there silently.
#[test]
fn half_staging_in_the_tensor_kernel_fails_what_overflows_in_a() {
    let run = range(&["--tensor", "on", "--staging", "half"]);
    if run.lacks_tensor_api() {
        return;
    }
    assert_tensor_api(&run);
    assert_fails_exactly(&run, 24, |case| overflows(case, "a_range"));
}
