//! The inputs of a checked graph, declared while it is built.

use std::fmt;

use super::data::{Data, Random};
use super::subject::{Given, Subject, Trained, Values};
use crate::dtype::DType;
use crate::error::{Call, Result};
use crate::graph::{Builder, ExpertIds, Input, RowIds, RowIdsOptions, Tensor};
use crate::shape::IntoShape;

/// Declares the inputs of a graph under a gradient check, and their values.
pub struct Inputs<'g> {
    builder: Builder<'g>,
    random: Random,
    given: Vec<Given>,
    trained: Vec<Trained<'g>>,
}

impl<'g> Inputs<'g> {
    pub(super) fn new(builder: Builder<'g>, seed: u64) -> Self {
        Self {
            builder,
            random: Random::new(seed),
            given: Vec::new(),
            trained: Vec::new(),
        }
    }

    /// What was declared, and what was made of it.
    pub(super) fn subject(self, result: Tensor<'g>) -> Subject<'g> {
        Subject {
            result,
            given: self.given,
            trained: self.trained,
        }
    }

    /// The graph's builder.
    pub fn builder(&self) -> Builder<'g> {
        self.builder
    }

    /// An F32 input whose gradient is checked.
    ///
    /// # Errors
    /// As [`Builder::input`].
    #[track_caller]
    pub fn trained(&mut self, shape: impl IntoShape, data: Data) -> Result<Tensor<'g>> {
        let call = Call::new("Inputs::trained");
        let name = format!("trained {}", self.trained.len());
        let tensor = self
            .float(call, &name, DType::F32, shape, &data)?
            .set_param()?;
        self.trained.push(Trained {
            name,
            index: self.given.len() - 1,
            tensor,
        });
        Ok(tensor)
    }

    /// An input without a gradient, of any type that f32 values convert to.
    ///
    /// # Errors
    /// As [`Builder::input`].
    #[track_caller]
    pub fn fixed(&mut self, dtype: DType, shape: impl IntoShape, data: Data) -> Result<Tensor<'g>> {
        let call = Call::new("Inputs::fixed");
        let name = format!("fixed {}", self.given.len());
        self.float(call, &name, dtype, shape, &data)
    }

    /// An input of integers.
    ///
    /// # Errors
    /// As [`Builder::input`].
    #[track_caller]
    pub fn integers(&mut self, shape: impl IntoShape, values: &[i32]) -> Result<Tensor<'g>> {
        let call = Call::new("Inputs::integers");
        let name = format!("integers {}", self.given.len());
        let (tensor, input) = self.builder.input(&name, DType::I32, shape)?;
        self.integers_of(call, input, values)?;
        Ok(tensor)
    }

    /// The choice of `experts` experts by so many tokens; as many per token as `values` has for each.
    ///
    /// # Errors
    /// As [`Builder::expert_ids`].
    #[track_caller]
    pub fn expert_ids(
        &mut self,
        tokens: usize,
        experts: usize,
        values: &[i32],
    ) -> Result<ExpertIds<'g>> {
        let call = Call::new("Inputs::expert_ids");
        let name = format!("experts {}", self.given.len());
        let per_token = values.len().checked_div(tokens).unwrap_or(0);
        let (ids, input) = self.builder.expert_ids(&name, per_token, tokens, experts)?;
        self.integers_of(call, input, values)?;
        Ok(ids)
    }

    /// The choice of rows by ids.
    ///
    /// # Errors
    /// As [`Builder::row_ids_with`].
    #[track_caller]
    pub fn row_ids(
        &mut self,
        shape: impl IntoShape,
        options: RowIdsOptions,
        values: &[i32],
    ) -> Result<RowIds<'g>> {
        let call = Call::new("Inputs::row_ids");
        let name = format!("rows {}", self.given.len());
        let (ids, input) = self.builder.row_ids_with(&name, shape, options)?;
        self.integers_of(call, input, values)?;
        Ok(ids)
    }

    fn integers_of(&mut self, call: Call, input: Input, values: &[i32]) -> Result<()> {
        let (given, wanted) = (values.len(), input.shape().elements());
        if given != wanted {
            return Err(call.shape(format!("{given} values for {wanted} elements")));
        }
        let values = Values::Integers(values.to_vec());
        self.given.push(Given { input, values });
        Ok(())
    }

    #[track_caller]
    fn float(
        &mut self,
        call: Call,
        name: &str,
        dtype: DType,
        shape: impl IntoShape,
        data: &Data,
    ) -> Result<Tensor<'g>> {
        let (tensor, input) = self.builder.input(name, dtype, shape)?;
        let values = data.draw(call, input.shape().ne(), &mut self.random)?;
        let values = Values::Floats(values);
        self.given.push(Given { input, values });
        Ok(tensor)
    }
}

impl fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}
