//! docs/gradients.md: which operands have a gradient, by operation.

use std::collections::BTreeMap;
use std::fmt;

use ggml_rs::DType;

use super::integral;
use super::operands::look;
use crate::case::{Case, CaseGraph, Choices};

const HEAD: &str = "\
# Operands with a gradient

Generated: `cargo run --release -p backend-ops -- grad --set quick --output markdown --update docs/gradients.md`. Do not edit; a test
(tests/tests/grad.rs) makes the table again and compares, so that no operand loses its gradient in silence.

From the cases of `backend-ops grad --set quick`: every operand of F32 is differentiated by alone, and nothing is computed. The second
column has the operands whose gradients `grad` checks, each with the number of cases in which it has one; the third those whose it does
not, by the reason. Operands of other types have no gradient of their own. Left out are operations without an operand of F32.

| operation | with a gradient | without one, or not checked |
|---|---|---|
";

/// Which operands have a gradient, by operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table(BTreeMap<&'static str, Row>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    /// In how many cases an operand has a gradient.
    with: BTreeMap<&'static str, usize>,
    /// In how many it has none, by the reason.
    without: BTreeMap<String, BTreeMap<&'static str, usize>>,
}

impl Table {
    /// Looks at the operands of all cases.
    ///
    /// # Errors
    /// For an operand that neither has a gradient nor says that it has none.
    pub fn of(cases: &[Box<dyn Case>]) -> ggml_rs::Result<Self> {
        let mut table = Self::default();
        for case in cases {
            table.add(&**case)?;
        }
        Ok(table)
    }

    fn add(&mut self, case: &dyn Case) -> ggml_rs::Result<()> {
        let choices = Choices::default();
        let Ok(built) = CaseGraph::new(case, choices) else {
            return Ok(());
        };
        let integral = integral(&built);
        for looked in look(case, choices)? {
            let row = self.0.entry(case.op()).or_default();
            let name = looked.name();
            match integral.as_deref().or(looked.left_out()) {
                None => count(&mut row.with, name),
                Some(why) => count(row.without.entry(short(case.op(), why)).or_default(), name),
            }
        }
        Ok(())
    }
}

fn count(operands: &mut BTreeMap<&'static str, usize>, name: &'static str) {
    *operands.entry(name).or_default() += 1;
}

/// A reason without what its row says already, and without telling quantized types apart.
fn short(op: &str, why: &str) -> String {
    let why = match why.split_once(": ") {
        Some((of, rest)) if of == op => rest,
        _ => why,
    };
    let is_quantized = |word: &str| word.parse().is_ok_and(DType::is_quantized);
    let words = why.split(' ').map(|word| match word.trim_end_matches(':') {
        name if is_quantized(name) => word.replace(name, "quantized"),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for (op, Row { with, without }) in &self.0 {
            let without = without.iter();
            let without = without.map(|(why, operands)| format!("{why}: {}", listed(operands)));
            let without = without.collect::<Vec<_>>().join("; ");
            writeln!(f, "| {op} | {} | {without} |", listed(with))?;
        }
        Ok(())
    }
}

fn listed(operands: &BTreeMap<&'static str, usize>) -> String {
    let operands = operands.iter();
    let operands = operands.map(|(name, count)| format!("{name} ({count})"));
    operands.collect::<Vec<_>>().join(", ")
}
