//! The leaves of a case's graph, as it builds on them.

use std::ops::Index;

use ggml_rs::{Builder, ExpertIds, Input, RowIds, RowIdsOptions, Tensor};

use super::Choices;
use crate::data::{Init, Operand};

/// The declared operands of a case. A tensor is found by its place among all operands, `leaves[1]`; ids, which are no tensors
/// to compute with, by [`Leaves::experts`] and [`Leaves::rows`] with theirs.
///
/// A wrong place is a mistake in the case and panics, as with a slice.
pub struct Leaves<'g> {
    graph: Builder<'g>,
    choices: Choices,
    leaves: Vec<Leaf<'g>>,
}

#[derive(Clone, Copy)]
enum Leaf<'g> {
    Tensor(Tensor<'g>),
    Experts(ExpertIds<'g>),
    Rows(RowIds<'g>),
}

impl<'g> Leaves<'g> {
    /// Declares operands in a graph. With `train`, those that are trained are marked as parameters.
    pub(crate) fn declare(
        graph: Builder<'g>,
        operands: &[Operand],
        choices: Choices,
        train: bool,
    ) -> ggml_rs::Result<(Self, Vec<Input>)> {
        let (mut leaves, mut inputs) = (Vec::new(), Vec::new());
        for operand in operands {
            let (leaf, input) = declare(graph, operand, train)?;
            leaves.push(leaf);
            inputs.push(input);
        }
        let declared = Self {
            graph,
            choices,
            leaves,
        };
        Ok((declared, inputs))
    }

    /// The graph's builder.
    pub fn graph(&self) -> Builder<'g> {
        self.graph
    }

    /// What the run asks of the ops that have a choice.
    pub fn choices(&self) -> Choices {
        self.choices
    }

    /// The experts' ids at a place.
    ///
    /// # Panics
    /// When that operand is not one of [`Operand::expert_ids`].
    pub fn experts(&self, place: usize) -> ExpertIds<'g> {
        match self.leaves[place] {
            Leaf::Experts(ids) => ids,
            _ => panic!("operand {place} holds no experts' ids"),
        }
    }

    /// The rows' ids at a place.
    ///
    /// # Panics
    /// When that operand is not one of [`Operand::row_ids`].
    pub fn rows(&self, place: usize) -> RowIds<'g> {
        match self.leaves[place] {
            Leaf::Rows(ids) => ids,
            _ => panic!("operand {place} holds no rows' ids"),
        }
    }

    /// The same leaves with another look at each that is a tensor.
    pub(super) fn mapped(
        &self,
        look: impl Fn(Tensor<'g>) -> ggml_rs::Result<Tensor<'g>>,
    ) -> ggml_rs::Result<Self> {
        let leaves = self.leaves.iter().map(|&leaf| match leaf {
            Leaf::Tensor(tensor) => look(tensor).map(Leaf::Tensor),
            ids => Ok(ids),
        });
        Ok(Self {
            graph: self.graph,
            choices: self.choices,
            leaves: leaves.collect::<ggml_rs::Result<_>>()?,
        })
    }

    /// All operands that are tensors, in their order.
    pub fn tensors(&self) -> Vec<Tensor<'g>> {
        self.leaves
            .iter()
            .filter_map(|leaf| match leaf {
                Leaf::Tensor(tensor) => Some(*tensor),
                _ => None,
            })
            .collect()
    }
}

impl<'g> Index<usize> for Leaves<'g> {
    type Output = Tensor<'g>;

    fn index(&self, place: usize) -> &Tensor<'g> {
        match &self.leaves[place] {
            Leaf::Tensor(tensor) => tensor,
            _ => panic!("operand {place} holds ids: see Leaves::experts and Leaves::rows"),
        }
    }
}

fn declare<'g>(
    graph: Builder<'g>,
    operand: &Operand,
    train: bool,
) -> ggml_rs::Result<(Leaf<'g>, Input)> {
    let [used, tokens, ..] = operand.ne;
    Ok(match operand.init {
        Init::Experts(all) => {
            let (ids, input) = graph.expert_ids(operand.name, used, tokens, all)?;
            (Leaf::Experts(ids), input)
        }
        Init::Rows { rows, distinct } => {
            let mut options = RowIdsOptions::new(rows);
            options.distinct = distinct;
            options.wide = operand.dtype == ggml_rs::DType::I64;
            let (ids, input) = graph.row_ids_with(operand.name, operand.ne, options)?;
            (Leaf::Rows(ids), input)
        }
        _ => {
            let (tensor, input) = graph.input(operand.name, operand.dtype, operand.ne)?;
            let tensor = match train && operand.trained {
                true => tensor.set_param()?,
                false => tensor,
            };
            (Leaf::Tensor(tensor), input)
        }
    })
}
