//! Inputs and outputs of integers.

use super::Plan;
use crate::dtype::DType;
use crate::error::{Call, Result};
use crate::graph::{Input, Output};
use crate::quantize::read_by;

impl Plan {
    /// Sets an input of i64, in ne order.
    ///
    /// # Errors
    /// As [`Plan::set_i32`].
    #[track_caller]
    pub fn set_i64(&mut self, input: &Input, values: &[i64]) -> Result<()> {
        self.set_integers(Call::new("Plan::set_i64"), input, DType::I64, values)
    }

    /// Reads an output of i32 in ne order: what [`Tensor::argmax`](crate::Tensor::argmax) gives, for one.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    ///
    /// let (graph, (x, best)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [3, 2])?;
    ///     Ok((x_in, g.output("best", x.argmax()?)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[0.1, 0.7, 0.2, 0.9, 0.0, 0.1])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_i32(&best)?, [1, 0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for an output of another type; [`Error::Param`](crate::Error::Param) before a run has
    /// finished, and for a token of another graph.
    #[track_caller]
    pub fn read_i32(&self, output: &Output) -> Result<Vec<i32>> {
        self.read_integers(Call::new("Plan::read_i32"), output, DType::I32)
    }

    /// Reads an output of i64 in ne order.
    ///
    /// # Errors
    /// As [`Plan::read_i32`].
    #[track_caller]
    pub fn read_i64(&self, output: &Output) -> Result<Vec<i64>> {
        self.read_integers(Call::new("Plan::read_i64"), output, DType::I64)
    }

    pub(super) fn set_integers<T: bytemuck::NoUninit>(
        &mut self,
        call: Call,
        input: &Input,
        dtype: DType,
        values: &[T],
    ) -> Result<()> {
        self.graph.needed_input(call, input)?;
        let name = self.graph.input_name(input.index());
        if input.dtype() != dtype {
            let detail = format!("input `{name}` is of type {}", input.dtype());
            return Err(call.dtype(detail));
        }
        let wanted = input.shape().elements();
        if values.len() != wanted {
            let given = values.len();
            let detail = format!("{given} values for input `{name}` of {wanted} elements");
            return Err(call.shape(detail));
        }
        self.put(call, input, bytemuck::cast_slice(values))
    }

    fn read_integers<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        call: Call,
        output: &Output,
        dtype: DType,
    ) -> Result<Vec<T>> {
        let tensor = self.graph.output(call, output)?;
        if output.dtype() != dtype {
            let why = format!("{} values: {}", output.dtype(), read_by(output.dtype()));
            return Err(call.dtype(self.graph.about_output(tensor, &why)));
        }
        Ok(bytemuck::pod_collect_to_vec(&self.take(call, output)?))
    }
}
