//! Every gradient that a backward makes, against central differences in double precision.
//!
//! One table of cases per family. The test prints how many ops and cases were checked and the worst errors, and fails for an op
//! with a backward that no case is about.

mod arithmetic;
mod control;
// mod normalize;
mod products;
mod reduce;
// mod rows;
// mod unary;
mod views;
// mod window;

use std::collections::{BTreeMap, BTreeSet};

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
        let options = GradientOptions::default()
            .seed(seed)
            .tolerance(self.tolerance);
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
        // normalize::cases(),
        products::cases(),
        reduce::cases(),
        // rows::cases(),
        // unary::cases(),
        views::cases(),
        // window::cases(),
    ];
    families.into_iter().flatten().collect()
}

const SEEDS: [u64; 2] = [1, 2];

#[test]
fn gradients_agree_with_differences() {
    let cases = cases();
    let mut failures = Vec::new();
    let mut worst: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let (mut checks, mut elements) = (0, 0);
    for case in &cases {
        for seed in SEEDS {
            match case.check(seed) {
                Ok(report) => {
                    let (formula, device) = worst.entry(case.op).or_default();
                    *formula = formula.max(report.formula.error);
                    *device = device.max(report.device.error);
                    checks += 1;
                    elements += report.elements;
                }
                Err(why) => failures.push(why),
            }
        }
    }
    println!("op: worst error of its formula in f64, and on the CPU, relative to its gradient");
    for (op, (formula, device)) in &worst {
        println!("  {op:<20} {formula:.1e}  {device:.1e}");
    }
    println!(
        "gradient checks: {} ops, {} cases, {checks} checks, {elements} elements; {} failed",
        worst.len(),
        cases.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
