//! Parameters of integers.

use super::Param;
use crate::dtype::DType;
use crate::error::{Call, Result};
use crate::quantize::read_by;

impl Param {
    /// Sets it from i32 values in ne order. Waits for runs that use its storage.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for a parameter of another type; [`Error::Shape`](crate::Error::Shape) unless there are
    /// as many values as elements.
    #[track_caller]
    pub fn set_i32(&self, values: &[i32]) -> Result<()> {
        self.set_integers(Call::new("Param::set_i32"), DType::I32, values)
    }

    /// Sets it from i64 values in ne order. Waits for runs that use its storage.
    ///
    /// # Errors
    /// As [`Param::set_i32`].
    #[track_caller]
    pub fn set_i64(&self, values: &[i64]) -> Result<()> {
        self.set_integers(Call::new("Param::set_i64"), DType::I64, values)
    }

    /// Reads it as i32 in ne order. Waits for runs that write its storage.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for a parameter of another type; [`Error::Param`](crate::Error::Param) before it was set.
    #[track_caller]
    pub fn read_i32(&self) -> Result<Vec<i32>> {
        self.read_integers(Call::new("Param::read_i32"), DType::I32)
    }

    /// Reads it as i64 in ne order. Waits for runs that write its storage.
    ///
    /// # Errors
    /// As [`Param::read_i32`].
    #[track_caller]
    pub fn read_i64(&self) -> Result<Vec<i64>> {
        self.read_integers(Call::new("Param::read_i64"), DType::I64)
    }

    fn set_integers<T: bytemuck::NoUninit>(
        &self,
        call: Call,
        dtype: DType,
        values: &[T],
    ) -> Result<()> {
        if self.dtype() != dtype {
            let detail = format!("parameter `{}` is of type {}", self.name(), self.dtype());
            return Err(call.dtype(detail));
        }
        self.check_count(call, values.len())?;
        self.put(call, bytemuck::cast_slice(values))
    }

    fn read_integers<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        call: Call,
        dtype: DType,
    ) -> Result<Vec<T>> {
        if self.dtype() != dtype {
            let (name, has) = (self.name(), self.dtype());
            let detail = format!("parameter `{name}`: {has} values: {}", read_by(has));
            return Err(call.dtype(detail));
        }
        Ok(bytemuck::pod_collect_to_vec(&self.take(call)?))
    }
}
