//! Which operands of a case have a gradient. Nothing is computed: each is differentiated by alone, so that one without a gradient
//! neither hides the others nor is hidden by them.

use std::collections::BTreeMap;

use ggml_rs::{DType, Graph, Tensor};

use super::FLAT;
use crate::case::{Case, Choices, Leaves};
use crate::data::{Init, Operand};

/// An operand of F32, in which gradients are.
pub(super) struct Looked {
    place: usize,
    name: &'static str,
    /// Whether the case has it trained, if it can be.
    wanted: bool,
    has: Has,
}

/// What a backward has for an operand.
enum Has {
    Gradient,
    /// Nothing, and differences must be zero.
    Zero,
    /// Nothing, for this reason.
    Nothing(String),
}

impl Looked {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Why its gradient is not checked; `None` where it is.
    pub fn left_out(&self) -> Option<&str> {
        match &self.has {
            Has::Nothing(why) => Some(why),
            Has::Zero => Some(CONSTANT),
            Has::Gradient if !self.wanted => Some("it has one, and the case does not train it"),
            Has::Gradient => None,
        }
    }
}

/// Of what no gradient reaches.
pub(super) const CONSTANT: &str = "its result is constant wherever it is defined";

/// Looks at every operand of F32 of a case that ggml-rs builds.
///
/// # Errors
/// For what neither has a gradient nor says that it has none.
pub(super) fn look(case: &dyn Case, choices: Choices) -> ggml_rs::Result<Vec<Looked>> {
    let operands = case.operands();
    let named = operands.iter().any(|operand| operand.trained);
    let floats = operands.iter().enumerate();
    let floats = floats.filter(|(_, operand)| is_trainable(operand));
    let looked = floats.map(|(place, operand)| {
        Ok(Looked {
            place,
            name: operand.name,
            wanted: if named {
                operand.trained
            } else {
                is_drawn(operand)
            },
            has: has(case, alone(&operands, place), choices)?,
        })
    });
    looked.collect()
}

/// What is checked of a case: its operands with those marked that are trained, and what is left out.
pub(super) struct Training {
    pub operands: Vec<Operand>,
    /// The names of those that have a gradient.
    pub trained: Vec<String>,
    /// The other operands of F32, each with the reason.
    pub untrained: BTreeMap<String, String>,
}

impl Training {
    /// Trains what the case names; where it names nothing, which is so for ops that upstream has no backward of, all that can be.
    /// `Err` says why nothing is left.
    pub fn of(case: &dyn Case, looked: &[Looked]) -> Result<Self, String> {
        let checked = |looked: &&Looked| looked.left_out().is_none();
        let name = |looked: &Looked| looked.name.to_owned();
        let trained: Vec<_> = looked.iter().filter(checked).map(name).collect();
        if trained.is_empty() {
            let first = looked.iter().find(|looked| looked.wanted);
            let why = first.and_then(Looked::left_out);
            return Err(why.unwrap_or("no operand can be trained").to_owned());
        }
        let left_out = |looked: &Looked| Some((name(looked), looked.left_out()?.to_owned()));
        Ok(Self {
            operands: within_range(case, marked(case.operands(), looked)),
            trained,
            untrained: looked.iter().filter_map(left_out).collect(),
        })
    }
}

/// Operands that hold numbers of F32, and no ids.
fn is_trainable(operand: &Operand) -> bool {
    let ids = matches!(operand.init, Init::Experts(_) | Init::Rows { .. });
    operand.dtype == DType::F32 && !ids
}

/// What is filled with numbers that count, or with extreme ones, is not trained unless the case says so.
fn is_drawn(operand: &Operand) -> bool {
    matches!(operand.init, Init::Uniform(_) | Init::Drawn(_))
}

/// The operands of which one alone is trained.
fn alone(operands: &[Operand], trained: usize) -> Vec<Operand> {
    let mut operands = operands.to_vec();
    for (place, operand) in operands.iter_mut().enumerate() {
        operand.trained = place == trained;
    }
    operands
}

/// The operands with those marked that differences are taken of: where a gradient is missing because nothing depends on the
/// operand, they must be zero.
fn marked(mut operands: Vec<Operand>, looked: &[Looked]) -> Vec<Operand> {
    let mut train = vec![false; operands.len()];
    for looked in looked {
        train[looked.place] = looked.wanted && !matches!(looked.has, Has::Nothing(_));
    }
    let marked = operands.iter_mut().zip(train);
    marked.for_each(|(operand, train)| operand.trained = train);
    operands
}

/// The trained operands in the range that the case sets for gradients.
fn within_range(case: &dyn Case, mut operands: Vec<Operand>) -> Vec<Operand> {
    if let Some(range) = case.gradient().range {
        // Values of other kinds are what their case is about.
        let uniform = |operand: &&mut Operand| matches!(operand.init, Init::Uniform(_));
        let trained = operands.iter_mut().filter(|operand| operand.trained);
        let trained = trained.filter(uniform);
        trained.for_each(|operand| operand.init = Init::Uniform(range));
    }
    operands
}

/// The graphs of the gradients of each operand that has one, with the case's own nodes that they need.
pub(super) fn backwards(case: &dyn Case) -> Vec<Graph> {
    let operands = case.operands();
    let floats = operands.iter().enumerate();
    let floats = floats.filter(|(_, operand)| is_trainable(operand));
    // What has no gradient is `has`'s to name.
    let graphs = floats.filter_map(|(place, _)| {
        let operands = alone(&operands, place);
        let built = Graph::build(|g| {
            let (leaves, _) = Leaves::declare(g, &operands, Choices::default(), true)?;
            let loss = floats_of(case.build(&leaves)?)?.sum()?;
            let gradient = g.backward(loss)?.of(leaves[place])?;
            g.output("gradient", gradient.cont()?)
        });
        built.ok()
    });
    graphs.map(|(graph, _)| graph).collect()
}

/// The result as a loss takes it.
fn floats_of(result: Tensor<'_>) -> ggml_rs::Result<Tensor<'_>> {
    match result.dtype() {
        DType::F32 if result.is_contiguous() => Ok(result),
        DType::F32 => result.cont(),
        _ => result.cast(DType::F32),
    }
}

fn has(case: &dyn Case, operands: Vec<Operand>, choices: Choices) -> ggml_rs::Result<Has> {
    match differentiate(case, &operands, choices) {
        Ok(()) => Ok(Has::Gradient),
        Err(ggml_rs::Error::NotDifferentiable(why)) => {
            Ok(Has::Nothing(format!("{}: {}", why.op, why.reason)))
        }
        Err(error) if error.to_string().contains(FLAT) => Ok(Has::Zero),
        Err(error) => Err(error),
    }
}

/// Builds the case's graph with a backward, which is thrown away.
fn differentiate(case: &dyn Case, operands: &[Operand], choices: Choices) -> ggml_rs::Result<()> {
    Graph::build(|g| {
        let (leaves, _) = Leaves::declare(g, operands, choices, true)?;
        let loss = floats_of(case.build(&leaves)?)?.sum()?;
        g.backward(loss)?;
        g.output("loss", loss)
    })?;
    Ok(())
}
