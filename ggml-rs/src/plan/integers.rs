//! Inputs of 64-bit integers.

use super::Plan;
use crate::dtype::DType;
use crate::error::{Error, OpError, Result};
use crate::graph::Input;

impl Plan {
    /// Sets an input of i64, in ne order.
    ///
    /// # Errors
    /// As [`Plan::set_i32`].
    #[track_caller]
    pub fn set_i64(&mut self, input: &Input, values: &[i64]) -> Result<()> {
        if input.dtype() != DType::I64 {
            let detail = format!("the input is of type {}", input.dtype());
            return Err(Error::DType(OpError::new(
                "Plan::set_i64",
                detail,
                Vec::new(),
            )));
        }
        self.set_bytes(input, bytemuck::cast_slice(values))
    }
}
