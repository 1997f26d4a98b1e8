//! The cases: what to compute, on which data, and what must come out.

mod add;
mod copy;
mod mul_mat;
mod mul_mat_id;
mod out_prod;

use std::fmt;

use ggml_rs::{Builder, ExpertIds, Route, Staging, Tensor};

pub use add::Add;
pub use copy::{Cont, Cpy};
pub use mul_mat::MulMat;
pub use mul_mat_id::MulMatId;
pub use out_prod::OutProd;

use crate::data::{Operand, OperandData};
use crate::routing::Routing;
use crate::study::Study;

/// What a run asks of the ops that have a choice. Without a value they run as every other caller has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// How products stage their operands.
    pub staging: Option<Staging>,
    /// How a MUL_MAT of many rows runs.
    pub route: Option<Route>,
}

/// One test case of one op.
pub trait Case: Send + Sync {
    /// ggml's op name, `OUT_PROD`.
    fn op(&self) -> &'static str;

    /// The parameters, as upstream prints them.
    fn params(&self) -> String;

    /// The case string: `OP(params)`.
    fn name(&self) -> String {
        format!("{}({})", self.op(), self.params())
    }

    /// The leaf tensors.
    fn operands(&self) -> Vec<Operand>;

    /// Builds the graph on the operands, given in the order of [`Case::operands`], and returns its result. `choices`
    /// are for the ops that have them.
    ///
    /// # Errors
    /// When ggml-rs refuses the operands.
    fn build<'g>(
        &self,
        graph: Builder<'g>,
        operands: &[Tensor<'g>],
        choices: Choices,
    ) -> ggml_rs::Result<Tensor<'g>>;

    /// [`Case::build`] for a case whose last operand is [`Operand::expert_ids`], which is no tensor to compute with.
    ///
    /// # Errors
    /// When ggml-rs refuses the operands.
    fn build_with_experts<'g>(
        &self,
        graph: Builder<'g>,
        operands: &[Tensor<'g>],
        _ids: ExpertIds<'g>,
        choices: Choices,
    ) -> ggml_rs::Result<Tensor<'g>> {
        self.build(graph, operands, choices)
    }

    /// The result in f64, from the operands' values.
    ///
    /// # Errors
    /// When the shapes do not fit.
    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Vec<f64>>;

    /// The largest NMSE that passes; upstream's default unless the op overrides it. What is asked
    /// for may be held to more than the op's own choice.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        1e-7
    }

    /// What a Metal device must dispatch for this case; `None` asserts nothing.
    fn routing(&self, _tensor_api: bool, _choices: Choices) -> Option<Routing> {
        None
    }

    /// For a case that runs in every staging: what they are held to.
    fn study(&self) -> Option<Study> {
        None
    }

    /// Simpler variants of the case, each with what it leaves out. When a device refuses the case and takes a variant, what
    /// the variant left out is the reason: `supports_op` itself gives none.
    fn relaxations(&self) -> Vec<Relaxation> {
        Vec::new()
    }
}

/// A variant of a case that lacks one difficulty.
pub struct Relaxation {
    /// What the variant leaves out: `src1 type f16`.
    pub without: String,
    /// The variant.
    pub case: Box<dyn Case>,
}

/// Relaxations from variants, but for those that leave out what the case does not have.
fn relaxed<C: Case + PartialEq + 'static>(
    case: &C,
    variants: impl IntoIterator<Item = (String, C)>,
) -> Vec<Relaxation> {
    variants
        .into_iter()
        .filter(|(_, variant)| variant != case)
        .map(|(without, variant)| Relaxation {
            without,
            case: Box::new(variant),
        })
        .collect()
}

/// A list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// Upstream's cases, then ours.
    Upstream,
    /// The 37 OUT_PROD cases that must all pass: a case that the device does not support is a failure here.
    Gate,
    /// OUT_PROD with operands beyond half's range, on either side.
    Range,
    /// MUL_MAT_ID in every staging against sums in f64, with bounds on each error.
    GroundTruth,
}

impl Set {
    /// The cases, in order.
    #[must_use]
    pub fn cases(self) -> Vec<Box<dyn Case>> {
        match self {
            Self::Gate => boxed(out_prod::gate()).collect(),
            Self::Range => boxed(out_prod::range()).collect(),
            Self::GroundTruth => boxed(mul_mat_id::ground_truth()).collect(),
            Self::Upstream => boxed(copy::cpy_cases())
                .chain(boxed(copy::cont_cases()))
                .chain(boxed(add::cases()))
                .chain(boxed(mul_mat::cases()))
                .chain(boxed(mul_mat::ours()))
                .chain(boxed(mul_mat_id::cases()))
                .chain(boxed(out_prod::upstream()))
                .chain(boxed(out_prod::ours()))
                .collect(),
        }
    }

    /// Whether the set forbids gaps.
    #[must_use]
    pub fn requires_support(self) -> bool {
        self != Self::Upstream
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upstream => "upstream",
            Self::Gate => "gate",
            Self::Range => "range",
            Self::GroundTruth => "ground-truth",
        })
    }
}

fn boxed<C: Case + 'static>(cases: Vec<C>) -> impl Iterator<Item = Box<dyn Case>> {
    cases
        .into_iter()
        .map(|case| Box::new(case) as Box<dyn Case>)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_default_set_holds_every_op_and_the_gate_only_out_prod() {
        let ops = |set: Set| {
            set.cases()
                .iter()
                .map(|case| case.op())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            ops(Set::Upstream),
            BTreeSet::from(["ADD", "CONT", "CPY", "MUL_MAT", "MUL_MAT_ID", "OUT_PROD"])
        );
        assert_eq!(ops(Set::Gate), BTreeSet::from(["OUT_PROD"]));
        assert!(Set::Gate.requires_support() && !Set::Upstream.requires_support());
    }

    #[test]
    fn a_relaxation_is_another_case_of_the_same_op() {
        for case in Set::Upstream.cases() {
            for relaxation in case.relaxations() {
                assert_eq!(relaxation.case.op(), case.op());
                assert_ne!(
                    relaxation.case.params(),
                    case.params(),
                    "{} leaves out nothing",
                    relaxation.without
                );
            }
        }
    }
}
