//! The graph without a backward: what its differences are.

use std::collections::BTreeSet;

use super::data::{Data, Random};
use super::difference::{self, Slope};
use super::subject::{Given, Subject};
use crate::check::Interpreter;
use crate::dtype::DType;
use crate::error::{Call, Moved, Result};
use crate::graph::{Builder, Graph, Input, Output, Tensor, node};

/// A derivative, or the differences on both sides of a kink.
pub type Slopes = Vec<std::result::Result<Slope, Slope>>;

/// A graph without a backward.
pub struct Forward {
    graph: Graph,
    given: Vec<Given>,
    /// Names of the trained inputs, and which of the given ones they are.
    trained: Vec<(String, usize)>,
    /// The terms of the loss.
    terms: Output,
}

impl Forward {
    #[track_caller]
    pub fn build(
        call: Call,
        seed: u64,
        build: &impl for<'g> Fn(Builder<'g>) -> Result<Subject<'g>>,
    ) -> Result<Self> {
        let (graph, (given, trained, terms)) = Graph::build(|g| {
            let Subject {
                result,
                mut given,
                trained,
            } = build(g)?;
            let (terms, weights) = terms(call, g, result, seed)?;
            given.push(weights);
            let trained = trained.into_iter();
            let trained: Vec<_> = trained.map(|input| (input.name, input.index)).collect();
            Ok((given, trained, g.output("terms", terms)?))
        })?;
        Ok(Self {
            graph,
            given,
            trained,
            terms,
        })
    }

    /// The trained inputs' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.trained.iter().map(|(name, _)| &**name)
    }

    /// The derivatives of the loss by some elements of a trained input.
    pub fn slopes(&self, call: Call, trained: usize, elements: &[usize]) -> Result<Slopes> {
        let mut reference = Interpreter::new(&self.graph).moved_to(call.at)?;
        for given in &self.given {
            given.set_reference(call, &mut reference)?;
        }
        let input: &Input = &self.given[self.trained[trained].1].input;
        difference::slopes(&self.values(trained), elements, |values| {
            // What the result does not depend on changes nothing.
            if reference.needs(input)? {
                reference.set(input, values)?;
            }
            reference.run()?;
            reference.read(&self.terms)
        })
        .moved_to(call.at)
    }

    /// A trained input's values.
    pub fn values(&self, trained: usize) -> Vec<f64> {
        self.given[self.trained[trained].1].floats()
    }

    /// The ops that it is made of.
    pub fn ops(&self) -> BTreeSet<String> {
        let tensors = self.graph.tensors().iter();
        // SAFETY: the graph keeps its tensors alive.
        tensors
            .map(|&tensor| unsafe { node::op_name(tensor) })
            .collect()
    }
}

/// What the loss is the sum of: a result, each element with a weight of its own. The weights are an input.
pub fn terms<'g>(
    call: Call,
    g: Builder<'g>,
    result: Tensor<'g>,
    seed: u64,
) -> Result<(Tensor<'g>, Given)> {
    let result = match result.dtype() {
        DType::F16 | DType::BF16 => result.cast(DType::F32),
        _ if result.is_contiguous() => Ok(result),
        _ => result.cont(),
    };
    let result = result.moved_to(call.at)?;
    let shape = result.shape();
    let input = g.input("weights of the loss", DType::F32, shape);
    let (weights, input) = input.moved_to(call.at)?;
    // Another stream than the inputs'.
    let mut random = Random::new(!seed);
    let values = Data::Within(0.5, 1.5).draw(call, input.shape().ne(), &mut random)?;
    let terms = result.mul(weights).moved_to(call.at)?;
    Ok((terms, Given::floats_of(input, values)))
}
