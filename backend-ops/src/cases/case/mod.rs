//! What a case is: what to compute, on which data, and how near the result must come.

mod cost;
pub mod data;
mod gradient;
mod graph;
mod layout;
mod leaves;
mod measure;
mod smaller;
mod variant;
pub mod vars;

pub(crate) use cost::cost;
pub use gradient::Gradient;
pub use graph::CaseGraph;
pub use layout::Layout;
pub use leaves::Leaves;
pub use measure::{Measure, Ranks};
pub(crate) use smaller::{find as find_smaller, smaller};
pub use variant::Variant;
pub(crate) use variant::{laid_out, with_extremes, with_infinities};

use ggml_rs::{DType, Route, Staging, Tensor};

use crate::data::{Operand, OperandData};
use crate::judge::routing::Routing;
use crate::judge::study::Study;

/// What a run asks of the ops that have a choice. Without a value they run as every other caller has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// How products stage their operands.
    pub staging: Option<Staging>,
    /// How a MUL_MAT of many rows, or an OUT_PROD, runs. An op takes no notice of a route that it does not have.
    pub route: Option<Route>,
}

/// One test case of one op.
pub trait Case: Send + Sync {
    /// ggml's op name, `OUT_PROD`; for a graph that backends fuse, upstream's name of the fusion.
    fn op(&self) -> &'static str;

    /// The parameters, as upstream prints them.
    fn params(&self) -> String;

    /// The case string: `OP(params)`.
    fn name(&self) -> String {
        format!("{}({})", self.op(), self.params())
    }

    /// The leaf tensors.
    fn operands(&self) -> Vec<Operand>;

    /// Builds the graph on the leaves, which are in the order of [`Case::operands`], and returns its result.
    ///
    /// # Errors
    /// When ggml-rs refuses the operands.
    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>>;

    /// The result in f64, from the operands' values. `None`, the default: the graph itself, evaluated in f64 and rounded to
    /// the result's type.
    ///
    /// # Errors
    /// When the shapes do not fit.
    fn reference(&self, _operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        Ok(None)
    }

    /// The largest NMSE that passes; upstream's default unless the op overrides it. What is asked
    /// for may be held to more than the op's own choice.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        1e-7
    }

    /// What is compared.
    fn measure(&self) -> Measure {
        Measure::Values
    }

    /// How the gradients of the trained operands are checked.
    fn gradient(&self) -> Gradient {
        Gradient::default()
    }

    /// Floating point operations of one run, a multiply-add counting as two; `None` where bytes say more.
    fn flops(&self) -> Option<f64> {
        None
    }

    /// What a device does for the case one after the other, for mode `perf` to time alone; empty for a single kernel.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// Whether the case is a graph of several ops, named after what backends fuse it to.
    fn is_fusion(&self) -> bool {
        false
    }

    /// What a Metal device must dispatch for this case; `None` asserts nothing.
    fn routing(&self, _tensor_api: bool, _choices: Choices) -> Option<Routing> {
        None
    }

    /// For a case that runs in every staging: what they are held to.
    fn study(&self) -> Option<Study> {
        None
    }

    /// Forms of the case that are smaller in one size, for `--bisect`: `smaller(self, |case| vec![&mut case.m, &mut case.n])`.
    fn smaller(&self) -> Vec<Box<dyn Case>> {
        Vec::new()
    }

    /// Simpler variants of the case, each with what it leaves out. When a device refuses the case and takes a variant, what
    /// the variant left out is the reason: `supports_op` itself gives none.
    fn relaxations(&self) -> Vec<Relaxation> {
        Vec::new()
    }
}

/// A step of an op, as a case that does the same work.
pub struct Part {
    /// What it does.
    pub name: &'static str,
    /// Whether it makes a temporary for a later step.
    pub is_temporary: bool,
    /// The case.
    pub case: Box<dyn Case>,
}

/// A variant of a case that lacks one difficulty.
pub struct Relaxation {
    /// What the variant leaves out: `src1 type f16`.
    pub without: String,
    /// The variant.
    pub case: Box<dyn Case>,
}

/// Relaxations from variants, but for those that leave out what the case does not have.
pub(crate) fn relaxed<C: Case + PartialEq + 'static>(
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

/// The relaxation of a case of this type to one of F32.
pub(crate) fn as_floats<C: Case + 'static>(dtype: DType, floats: C) -> Vec<Relaxation> {
    let relaxation = || Relaxation {
        without: format!("type {dtype}"),
        case: Box::new(floats),
    };
    (dtype != DType::F32).then(relaxation).into_iter().collect()
}

/// Cases of one type as cases of any.
pub(crate) fn boxed<C: Case + 'static>(cases: Vec<C>) -> impl Iterator<Item = Box<dyn Case>> {
    cases
        .into_iter()
        .map(|case| Box::new(case) as Box<dyn Case>)
}
