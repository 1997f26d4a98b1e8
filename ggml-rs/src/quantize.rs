//! Conversion between f32 and the other data types, by ggml's own row functions.
use crate::{dtype::DType, error::Result};
/// Converts rows of `row_len` values to `dtype`.
pub fn quantize(dtype: DType, values: &[f32], row_len: usize) -> Result<Vec<u8>> {
    let _ = (dtype, values, row_len);
    unimplemented!()
}
/// Converts the bytes of `dtype` to f32.
pub fn dequantize(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
    let _ = (dtype, bytes);
    unimplemented!()
}
