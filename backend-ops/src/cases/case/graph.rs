//! A case's graph.

use ggml_rs::check::Interpreter;
use ggml_rs::{DType, Graph, Input, Output};

use super::{Case, Choices, Leaves};
use crate::data::{OperandData, stored_as};

/// A case's graph, ready to be planned.
pub struct CaseGraph {
    /// The graph.
    pub graph: Graph,
    /// Its inputs, in the order of [`Case::operands`].
    pub inputs: Vec<Input>,
    /// The result of [`Case::build`].
    pub output: Output,
}

impl CaseGraph {
    /// Builds the graph.
    ///
    /// # Errors
    /// When ggml-rs refuses it.
    pub fn new(case: &dyn Case, choices: Choices) -> ggml_rs::Result<Self> {
        let (graph, (inputs, output)) = Graph::build(|g| {
            let (leaves, inputs) = Leaves::declare(g, &case.operands(), choices, false)?;
            let out = case.build(&leaves)?;
            Ok((inputs, g.output("out", out)?))
        })?;
        Ok(Self {
            graph,
            inputs,
            output,
        })
    }

    /// Bytes of the operands as stored, and of the result: what a run moves at least.
    ///
    /// # Errors
    /// When they exceed the address space.
    pub fn bytes(&self) -> ggml_rs::Result<usize> {
        let result = self.output.shape().bytes(self.output.dtype())?;
        self.inputs.iter().try_fold(result, |sum, input| {
            Ok(sum + input.shape().bytes(input.dtype())?)
        })
    }

    /// The result in f64: every node of the graph by ggml's definition, without rounding but for the result's own type. `None`
    /// where an op has no definition in f64.
    ///
    /// # Errors
    /// When the data do not fit the graph.
    pub fn evaluate(&self, data: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let mut reference = match Interpreter::new(&self.graph) {
            Err(ggml_rs::Error::Unsupported(_)) => return Ok(None),
            other => other?,
        };
        for (input, data) in self.inputs.iter().zip(data) {
            if reference.needs(input)? {
                reference.set_bytes(input, data.bytes())?;
            }
        }
        reference.run()?;
        let values = reference.read(&self.output)?;
        Ok(Some(rounded(self.output.dtype(), values)?))
    }
}

/// Half's own rounding is about as large as the limits.
fn rounded(dtype: DType, values: Vec<f64>) -> ggml_rs::Result<Vec<f64>> {
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return Ok(values);
    }
    let narrow: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
    Ok(stored_as(dtype, &narrow)?
        .into_iter()
        .map(f64::from)
        .collect())
}
