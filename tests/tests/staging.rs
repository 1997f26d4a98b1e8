//! Set `staging` of mode `perf`, on the simulated device: the table's labels, and counters that differ as the stagings do.
//! Counters are those of runs, so of the table's smallest size; larger ones have what the device tells without a run.
#![cfg(not(target_os = "macos"))]

use std::sync::LazyLock;

use ggml_rs_tests::{Run, backend_ops};
use serde_json::Value;

fn perf(args: &[&str]) -> Run {
    let fixed = ["perf", "-b", "MTL0", "--require", "MTL0"];
    let run = backend_ops(
        env!("CARGO_BIN_EXE_backend-ops-under-test"),
        &[&fixed, args].concat(),
    )
    .expect("backend-ops starts");
    assert_eq!(run.status.code(), Some(0), "{}", run.transcript());
    run
}

fn rows(run: &Run) -> Vec<Value> {
    let rows = run.stdout.lines();
    rows.map(|row| serde_json::from_str(row).expect("one object a line"))
        .collect()
}

/// The whole table without the tensor API, whose counted runs take seconds.
static SIMDGROUP: LazyLock<Run> =
    LazyLock::new(|| perf(&["--set", "staging", "--tensor", "off", "--output", "json"]));

fn of_arm<'a>(rows: &'a [Value], arm: &'a str) -> impl Iterator<Item = &'a Value> {
    rows.iter().filter(move |row| row["arm"] == arm)
}

/// A field that stands behind the parameters.
fn field(row: &Value, name: &str) -> usize {
    let params = row["op_params"].as_str().expect("text");
    let value = params
        .split(',')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("{name}: {params}"));
    value.parse().expect("a number")
}

#[test]
fn float_staging_takes_twice_the_threadgroup_memory_and_does_the_same_work() {
    let run = &*SIMDGROUP;
    let rows = rows(run);
    assert_eq!(
        rows.len(),
        24,
        "eight cases in three arms: {}",
        run.transcript()
    );
    let (half, float) = (of_arm(&rows, "simd-half"), of_arm(&rows, "simd-float"));
    let pairs: Vec<_> = half.zip(float).collect();
    assert_eq!(pairs.len(), 8, "{}", run.transcript());
    let mut counted = 0;
    for (half, float) in pairs {
        // Whole tiles: half needs no tile for its output, which 8192 bytes would hold.
        assert_eq!(field(half, "threadgroup_bytes"), 6144);
        assert_eq!(field(float, "threadgroup_bytes"), 12288);
        assert_eq!(field(half, "held_bytes"), field(float, "held_bytes"));
        for row in [half, float] {
            assert_eq!(
                (&row["time_us"], &row["median_us"]),
                (&0.0.into(), &Value::Null)
            );
            let why = row["error_message"].as_str().expect("text");
            let expected = match row["counters"].is_null() {
                true => "too much to simulate",
                false => "counters of one run, not times",
            };
            assert!(why.contains(expected), "{why}");
            assert_eq!(row["passed"], !row["counters"].is_null(), "{row}");
        }
        if half["counters"].is_null() {
            assert!(field(half, "m") > 1536, "{half}");
            continue;
        }
        counted += 1;
        let mut expected = half["counters"].clone();
        expected["threadgroup_bytes"] = Value::from(
            2 * half["counters"]["threadgroup_bytes"]
                .as_u64()
                .expect("a count"),
        );
        assert_eq!(float["counters"], expected);
        assert_eq!(
            half["counters"]["simdgroup_fmas"],
            field(half, "m") * field(half, "n") * field(half, "k")
        );
    }
    assert_eq!(counted, 2, "either weights: {}", run.transcript());
}

/// The arms' product is the same; the direct route does nothing besides, and holds nothing but operands and result.
#[test]
fn the_direct_route_makes_no_temporaries() {
    let mut rows = rows(&SIMDGROUP);
    rows.retain(|row| field(row, "m") == 1536);
    let (float, direct) = (of_arm(&rows, "simd-float"), of_arm(&rows, "direct"));
    let pairs: Vec<_> = float.zip(direct).collect();
    assert_eq!(pairs.len(), 2);
    for (float, direct) in pairs {
        let [m, n, k] = ["m", "n", "k"].map(|name| field(direct, name));
        assert_eq!(field(direct, "threadgroup_bytes"), 12288);
        assert_eq!(direct["counters"]["dispatches"], 1);
        assert_eq!(direct["counters"]["threadgroups"], m / 64 * (n / 32));
        for name in ["simdgroup_fmas", "threadgroup_barriers"] {
            assert_eq!(direct["counters"][name], float["counters"][name], "{name}");
        }
        let scratch = field(float, "held_bytes") - field(direct, "held_bytes");
        assert!(scratch > 4 * m * n, "{scratch} bytes");
        if direct["op_params"]
            .as_str()
            .is_some_and(|params| params.contains("type_a=f32"))
        {
            assert_eq!(field(direct, "held_bytes"), 4 * (m * k + n * k + m * n));
        }
    }
}

#[test]
fn the_tensor_kernel_has_arms_of_its_own() {
    let args = [
        "--set", "staging", "--tensor", "on", "-p", "m=1536", "--output", "json",
    ];
    let rows = rows(&perf(&args));
    assert_eq!(rows.len(), 4);
    for (arm, bytes) in [("tensor", 8192), ("tensor-half", 4096)] {
        assert_eq!(of_arm(&rows, arm).count(), 2, "{arm}");
        for row in of_arm(&rows, arm) {
            assert_eq!(field(row, "threadgroup_bytes"), bytes);
            // Float operands are never rounded; halves may be.
            assert_eq!(
                row["counters"]["relaxed_fmas"] == 0,
                arm == "tensor",
                "{row}"
            );
        }
    }
}

#[test]
fn the_table_says_what_its_figures_are() {
    let run = perf(&["--set", "staging", "--tensor", "off", "-p", "q4_K.*m=1536"]);
    for part in [
        "simulated",
        "counters of one run stand in place of times",
        "not here and not with this code",
        "simd-half",
        "kernel_mul_mm_f32_f32_fp32",
        "2.8-2.9",
        "3.0-7.3",
        "--tensor on",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.transcript());
    }
    assert!(!run.stdout.contains("us/run"), "{}", run.transcript());
}

/// The same at a small size, by a run: nothing computed.
#[test]
fn what_mode_perf_counts_is_what_ran() {
    let args = ["-o", "OUT_PROD", "-p", "type_a=f32.*m=4096,n=16.*trans_b=0"];
    let run = perf(&args);
    for (arm, bytes) in [("float", "12288"), ("half", "8192")] {
        let line = run
            .stdout
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{arm}: ")))
            .unwrap_or_else(|| panic!("{arm}: {}", run.transcript()));
        assert!(
            line.contains(&format!("{bytes} threadgroup bytes")),
            "{line}"
        );
        assert!(line.contains("matrix FMAs 67108864"), "{line}");
    }
    assert!(
        run.stdout.contains("too large to simulate 0, failed 0"),
        "{}",
        run.transcript()
    );
}
