//! `backend-ops grad` over a subset: no gradient is wrong, none ends the process, and every op with a backward that the subset
//! can reach is reached.

use std::collections::BTreeSet;

use ggml_rs::check::differentiable_ops;
use ggml_rs_tests::{Run, backend_ops};

/// A row of `--output json`, as far as it matters here.
#[derive(serde::Deserialize)]
struct Row {
    op_name: String,
    op_params: String,
    test_mode: String,
    supported: bool,
    passed: bool,
    error_message: String,
}

fn grad(args: &[&str]) -> Run {
    let fixed = ["grad", "-b", "CPU", "--output", "json"];
    let exe = env!("CARGO_BIN_EXE_backend-ops-under-test");
    backend_ops(exe, &[&fixed, args].concat()).expect("backend-ops starts")
}

fn rows(run: &Run) -> Vec<Row> {
    let rows = run.stdout.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().expect("a row a line")
}

/// Ops with a backward that no case of the subset is named after: fusions and composed graphs reach them, or ggml-rs's own tests
/// (`tests/gradients`), which demand a case for each.
const UNNAMED: usize = 6;

#[test]
fn gradients_of_a_cover_of_all_parameters_are_right() {
    let run = grad(&["--set", "quick"]);
    let rows = rows(&run);
    let wrong: Vec<_> = (rows.iter().filter(|row| row.supported && !row.passed))
        .map(|row| format!("{}({}): {}", row.op_name, row.op_params, row.error_message))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(rows.iter().all(|row| row.test_mode == "grad"));

    let passed = rows.iter().filter(|row| row.passed);
    let named: BTreeSet<String> = passed.map(|row| row.op_name.clone()).collect();
    let all = differentiable_ops().expect("a CPU that ggml was compiled for");
    let missing: Vec<_> = all.difference(&named).collect();
    println!(
        "{} rows, {} of {} ops with a backward; missing: {missing:?}",
        rows.len(),
        all.len() - missing.len(),
        all.len()
    );
    assert!(missing.len() <= UNNAMED, "no case passed: {missing:?}");
}
