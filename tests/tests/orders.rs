//! What a kernel computes must not depend on the order in which the simulated device runs what no barrier orders: lanes,
//! simdgroups, threadgroups and dispatches. Each case's verdict and the bits of its result are the same in every order.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use ggml_rs_tests::backend_ops_in_order;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// Cases that run here.
struct Subset {
    name: &'static str,
    args: &'static [&'static str],
    /// What is compared with the ascending order.
    orders: &'static [&'static str],
}

/// `backend-ops test -b MTL0 --output json` under `METAL_SIM_ORDER` runs all.
const SUBSETS: &[Subset] = &[
    // `--verify` compares the reversed order's bits of the same cases, in `.ci/run`.
    Subset {
        name: "quick",
        args: &["--set", "quick"],
        orders: &["random"],
    },
    Subset {
        name: "gate",
        args: &["--set", "gate", "-p", "k=(1|16|64)"],
        orders: &["reversed", "random"],
    },
    Subset {
        name: "direct",
        args: &["-o", "OUT_PROD", "--set", "quick", "--route", "direct"],
        orders: &["reversed", "random"],
    },
];

/// Ops whose results are sets, in any order.
const SETS: [&str; 1] = ["TOP_K"];

/// What must agree, by case string.
type Results = BTreeMap<String, Outcome>;

#[derive(Debug, PartialEq)]
struct Outcome {
    passed: bool,
    message: String,
    hash: Option<String>,
}

fn results(cases: &[&str], order: &str) -> Result<Results> {
    let args = [&["test", "-b", "MTL0", "--output", "json"], cases].concat();
    let exe = env!("CARGO_BIN_EXE_backend-ops-under-test");
    let run = backend_ops_in_order(exe, &args, order)?;
    let rows = run.stdout.lines().map(row).collect::<Result<Results>>();
    let rows = rows.with_context(|| run.transcript())?;
    // A run that died in a case has written the rows before it.
    let ended = matches!(run.status.code(), Some(0 | 1));
    ensure!(ended && !rows.is_empty(), "{}", run.transcript());
    Ok(rows)
}

fn row(line: &str) -> Result<(String, Outcome)> {
    let row: Value = serde_json::from_str(line)?;
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    let field = |name: &str| text(name).with_context(|| format!("no {name}: {line}"));
    let is_set = SETS.iter().any(|op| row["op_name"] == *op);
    let outcome = Outcome {
        passed: row["passed"].as_bool().context("no verdict")?,
        message: field("error_message")?,
        hash: text("result_hash").filter(|_| !is_set),
    };
    // Without it, nothing of what passed would be compared.
    ensure!(
        !outcome.passed || is_set || outcome.hash.is_some(),
        "no hash: {line}"
    );
    let case = format!("{}({})", field("op_name")?, field("op_params")?);
    Ok((case, outcome))
}

fn agree(subset: &Subset) -> Result<String> {
    let cases = subset.args;
    let ascending = results(cases, "ascending")?;
    let passed = ascending.values().filter(|outcome| outcome.passed);
    let (passed, total) = (passed.count(), ascending.len());
    ensure!(passed > 0, "no case passed, so nothing is compared");
    for order in subset.orders {
        let other = results(cases, order)?;
        ensure!(
            other.len() == total,
            "{order}: {} cases, not {total}",
            other.len()
        );
        for (case, expected) in &ascending {
            let found = other.get(case);
            ensure!(
                found == Some(expected),
                "{case}: ascending {expected:?}, {order} {found:?}"
            );
        }
    }
    Ok(format!("{total} cases agree, {passed} of them passed"))
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // Each run uses all cores.
    args.test_threads = Some(1);
    let simulated = env!("GGML_BACKENDS")
        .split(',')
        .any(|backend| backend == "metal-sim");
    let trials = SUBSETS.iter().map(|subset| {
        Trial::test(subset.name, move || {
            let outcome = agree(subset).map_err(|e| Failed::from(format!("{e:#}")))?;
            eprintln!("{}: {outcome}", subset.name);
            Ok(())
        })
        .with_ignored_flag(!simulated)
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}
