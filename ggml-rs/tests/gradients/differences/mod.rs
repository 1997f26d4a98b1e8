//! Every gradient that a backward makes, against central differences in double precision.
//!
//! One table of cases per family. The test prints how many ops and cases were checked and the worst errors, and fails for an op
//! with a backward that no case is about.

mod arithmetic;
mod block;
mod control;
mod normalize;
mod products;
mod reduce;
mod rows;
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
mod simulated;
mod training;
mod unary;
mod views;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use ggml_rs::check::{GradientOptions, GradientReport, Inputs, differentiable_ops, gradients};
use ggml_rs::{Result, Tensor};

/// What makes a case's graph.
type Build = Box<dyn for<'g> Fn(&mut Inputs<'g>) -> Result<Tensor<'g>>>;

/// A graph whose gradients are checked.
struct Case {
    /// The op that the case is about, as ggml names it.
    op: &'static str,
    /// What sets the case apart from the others of its op.
    what: String,
    tolerance: f64,
    build: Build,
}

impl Case {
    fn new(
        op: &'static str,
        what: impl Into<String>,
        build: impl for<'g> Fn(&mut Inputs<'g>) -> Result<Tensor<'g>> + 'static,
    ) -> Self {
        Self {
            op,
            what: what.into(),
            tolerance: GradientOptions::default().tolerance,
            build: Box::new(build),
        }
    }

    /// The same with a tolerance of its own; the case says why.
    fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Checks with one seed. An error is a failure, as a wrong gradient is.
    fn check(&self, seed: u64) -> std::result::Result<GradientReport, String> {
        let options = GradientOptions::default().seed(seed);
        self.check_with(options.tolerance(self.tolerance))
    }

    fn check_with(&self, options: GradientOptions) -> std::result::Result<GradientReport, String> {
        let seed = options.seed;
        let failed = |why: String| format!("{} ({}), seed {seed}: {why}", self.op, self.what);
        let report = gradients(&options, &self.build).map_err(|error| failed(error.to_string()))?;
        if !report.ops.contains(self.op) {
            return Err(failed(format!(
                "the graph has no {}: {:?}",
                self.op, report.ops
            )));
        }
        if report.passes() {
            Ok(report)
        } else {
            Err(failed(report.to_string()))
        }
    }
}

/// Every case.
fn cases() -> Vec<Case> {
    let families = [
        arithmetic::cases(),
        block::cases(),
        normalize::cases(),
        products::cases(),
        reduce::cases(),
        rows::cases(),
        unary::cases(),
        views::cases(),
        window::cases(),
    ];
    families.into_iter().flatten().collect()
}

const SEEDS: [u64; 2] = [1, 2];

/// What the checks of one op found.
#[derive(Default)]
struct Found {
    cases: usize,
    formula: f64,
    /// Of cases with the default tolerance; the others are printed on their own.
    device: f64,
}

#[test]
fn gradients_agree_with_differences() {
    let cases = cases();
    let (mut failures, mut rounded) = (Vec::new(), Vec::new());
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    let (mut checks, mut elements) = (0, 0);
    for case in &cases {
        let op = found.entry(case.op).or_default();
        op.cases += 1;
        for seed in SEEDS {
            match case.check(seed) {
                Ok(report) => {
                    op.formula = op.formula.max(report.formula.error);
                    if case.tolerance > GradientOptions::default().tolerance {
                        rounded.push(format!("{} ({}): {}", case.op, case.what, report.device));
                    } else {
                        op.device = op.device.max(report.device.error);
                    }
                    checks += 1;
                    elements += report.elements;
                }
                // The other seed would say the same again.
                Err(why) => {
                    failures.push(why);
                    break;
                }
            }
        }
    }
    print(&found, &rounded);
    // To the stream itself: libtest shows what print macros write only when a test fails.
    let _ = writeln!(
        std::io::stderr(),
        "gradient checks: {} ops, {} cases, {checks} checks, {elements} elements; {} cases failed",
        found.len(),
        cases.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn print(found: &BTreeMap<&str, Found>, rounded: &[String]) {
    println!(
        "op: cases; worst error of the formula in f64, and on the CPU, relative to the gradient"
    );
    for (
        op,
        Found {
            cases,
            formula,
            device,
        },
    ) in found
    {
        println!("  {op:<20} {cases:>3}  {formula:.1e}  {device:.1e}");
    }
    println!("cases whose device rounds more than f32:");
    rounded.iter().for_each(|case| println!("  {case}"));
}

#[test]
fn every_op_with_a_backward_has_a_case() {
    let checked: BTreeSet<String> = cases().iter().map(|case| case.op.to_owned()).collect();
    let differentiable = differentiable_ops().unwrap();
    let missing: Vec<_> = differentiable.difference(&checked).collect();
    assert!(
        missing.is_empty(),
        "ops with a backward and without a case: {missing:?}"
    );
    let unknown: Vec<_> = checked.difference(&differentiable).collect();
    assert!(
        unknown.is_empty(),
        "cases of ops without a backward: {unknown:?}"
    );
}
