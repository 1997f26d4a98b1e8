//! The study of MUL_MAT_ID's stagings on the Metal device (real on macOS, simulated elsewhere), in the simdgroup and in the
//! tensor kernel: every arm is there, ran the kernel that it names, and keeps its bounds.

use std::collections::BTreeMap;

use ggml_rs_tests::{Run, backend_ops};
use serde_json::Value;

const WEIGHTS: [&str; 6] = ["q2_K", "q4_K", "q8_0", "iq2_xxs", "f16", "f32"];
/// With the threadgroup memory of each.
const ARMS: [(&str, Option<&str>); 5] = [
    ("half", Some("8192")),
    ("float_weights", Some("10240")),
    ("float_activations", Some("8192")),
    ("float", Some("12288")),
    ("CPU_backend", None),
];

fn study(args: &[&str]) -> Run {
    let fixed = [
        "test",
        "-o",
        "MUL_MAT_ID",
        "--set",
        "ground-truth",
        "--output",
        "json",
    ];
    backend_ops(
        env!("CARGO_BIN_EXE_backend-ops-under-test"),
        &[&fixed, args].concat(),
    )
    .expect("backend-ops starts")
}

/// A row of the report, its parameters by name.
struct Row {
    mode: String,
    passed: bool,
    hash: String,
    params: BTreeMap<String, String>,
}

impl Row {
    fn new(line: &str) -> Self {
        let row: Value = serde_json::from_str(line).expect("one object per line");
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let params = text("op_params");
        let params = params.split(',').filter_map(|param| param.split_once('='));
        Self {
            mode: text("test_mode"),
            passed: row["passed"] == true,
            hash: text("result_hash"),
            params: params.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        }
    }

    fn number(&self, name: &str) -> f64 {
        self.params[name].parse().expect("a number")
    }
}

/// The arms of a type of weights, by name.
fn arms<'r>(rows: &'r [Row], weights: &str) -> BTreeMap<&'r str, &'r Row> {
    rows.iter()
        .filter(|row| row.mode == "arm" && row.params["type_a"] == weights)
        .map(|row| (&*row.params["arm"], row))
        .collect()
}

#[track_caller]
fn assert_holds(run: &Run) {
    assert!(run.status.success(), "{}", run.transcript());
    let rows: Vec<_> = run.stdout.lines().map(Row::new).collect();
    assert_eq!(rows.len(), WEIGHTS.len() * (1 + ARMS.len()));
    let cases: Vec<_> = rows.iter().filter(|row| row.mode == "test").collect();
    assert!(cases.len() == WEIGHTS.len() && cases.iter().all(|row| row.passed));
    for weights in WEIGHTS {
        let arms = arms(&rows, weights);
        for (arm, bytes) in ARMS {
            let row = arms[arm];
            let found = row.params.get("threadgroup_bytes").map(|bytes| &**bytes);
            assert_eq!(found, bytes, "{weights} {arm}");
            assert!(row.number("rms") > 0.0, "{weights} {arm}");
            let bound = row.number("max_abs") <= 5e-3 && row.passed;
            assert!(bound || arm == "CPU_backend", "{weights} {arm}");
        }
        assert_relations(weights, &arms);
    }
}

/// What the arms are to each other, said once more than in backend-ops: a check that checks nothing shows here.
#[track_caller]
fn assert_relations(weights: &str, arms: &BTreeMap<&str, &Row>) {
    let rms = |arm| arms[arm].number("rms");
    let (half, float) = (rms("half"), rms("float"));
    assert!(half >= 2.2 * float, "{weights}: {half} and {float}");
    if weights == "f16" {
        assert_eq!(arms["half"].hash, arms["float_weights"].hash);
        assert_eq!(arms["float_activations"].hash, arms["float"].hash);
        return;
    }
    for mixed in ["float_weights", "float_activations"] {
        let between = float < rms(mixed) && rms(mixed) < half;
        assert!(between, "{weights} {mixed}: {}", rms(mixed));
    }
}

#[test]
fn every_arm_keeps_its_bounds_in_the_simdgroup_kernel() {
    let run = study(&["-b", "MTL0", "--tensor", "off"]);
    assert_holds(&run);
    // The report for people, beside the rows.
    for part in ["tensor API: off", "6/6 tests passed", "exempt"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.transcript());
    }
}

#[test]
fn every_arm_keeps_its_bounds_in_the_tensor_kernel() {
    let run = study(&["-b", "MTL0", "--tensor", "on"]);
    if run.lacks_tensor_api() {
        return;
    }
    assert_holds(&run);
    assert!(
        run.stderr.contains("tensor API: on"),
        "{}",
        run.transcript()
    );
}

#[test]
fn a_device_without_the_stagings_fails() {
    let run = study(&["-b", "CPU", "-p", "type_a=f32"]);
    assert_eq!(run.status.code(), Some(1), "{}", run.transcript());
    let row = Row::new(run.stdout.lines().next().expect("a row"));
    assert!(!row.passed && run.stdout.lines().count() == 1);
}

#[test]
fn one_staging_alone_is_refused() {
    let run = study(&["-b", "MTL0", "--staging", "half"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.transcript());
    assert!(run.stderr.contains("every staging"), "{}", run.transcript());
}
