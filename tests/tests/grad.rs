//! `backend-ops grad` over a subset, on the CPU: no gradient is wrong, no case ends the process, and every op with a backward is in
//! a case that passes. And docs/gradients.md has the operands that have one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use backend_ops::case::Case;
use backend_ops::cases::Set;
use backend_ops::grad::Table;
use ggml_rs::check::differentiable_ops;
use ggml_rs_tests::{Run, backend_ops};

/// Larger cases of the quick set are for the full run: they have no ops or parameters of their own.
const MOST_ELEMENTS: usize = 5_000;

/// The quick set has every value of every parameter of every op; these are its small cases.
fn subset() -> Vec<Box<dyn Case>> {
    let mut cases = Set::Quick.cases();
    cases.retain(|case| {
        let operands = case.operands();
        let sizes = operands
            .iter()
            .map(|operand| operand.ne.iter().product::<usize>());
        sizes.sum::<usize>() <= MOST_ELEMENTS
    });
    cases
}

fn grad(cases: &[Box<dyn Case>]) -> Run {
    let names: Vec<_> = cases.iter().map(|case| case.name()).collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grad-cases.txt");
    fs::write(&file, names.join("\n")).expect("a folder for temporary files");
    let file = file.to_str().expect("a name in UTF-8");
    let exe = env!("CARGO_BIN_EXE_backend-ops-under-test");
    backend_ops(exe, &["grad", "-b", "CPU", "--test-file", file]).expect("backend-ops starts")
}

#[test]
fn small_cases_of_every_op_have_the_right_gradients() {
    let run = grad(&subset());
    let failures: Vec<_> = run.failures();
    assert!(failures.is_empty(), "{failures:#?}");
    let (passed, ran) = run.tally().expect("it ran to its end");
    assert_eq!(
        (run.status.code(), passed),
        (Some(0), ran),
        "{}",
        run.transcript()
    );
    assert!(
        !run.stdout.contains("the process died"),
        "{}",
        run.transcript()
    );

    let all = differentiable_ops()
        .expect("a CPU that ggml was compiled for")
        .len();
    let covered = format!("ops with a backward in a case that passed: {all} of {all}");
    println!("{passed} cases; {covered}");
    assert!(run.stdout.contains(&covered), "{}", run.transcript());
}

/// A case whose op begins to refuse an operand still passes, with the others: that shows here.
#[test]
fn the_table_of_operands_with_a_gradient_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gradients.md");
    let committed = fs::read_to_string(path).expect("docs/gradients.md is there");
    let table =
        Table::of(&Set::Quick.cases()).expect("every operand has a gradient or says why not");
    let table = table.to_string();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (here, there) = (lines(&table), lines(&committed));
    let is: Vec<_> = here.difference(&there).collect();
    let was: Vec<_> = there.difference(&here).collect();
    assert!(
        is.is_empty() && was.is_empty(),
        "if that is meant, make it again with the command in its head\nwas: {was:#?}\nis: {is:#?}"
    );
}
