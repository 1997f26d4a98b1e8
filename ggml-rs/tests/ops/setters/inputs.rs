//! Operands that show whether a request was kept.

use ggml_rs::DType;
use ggml_rs::quantize::{dequantize, quantize, quantize_with_importance};

use crate::common;

/// What the values of an operand bring to light.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// In [-1, 1): what rounds them shows.
    Fine,
    /// Fine, with one of 100 in every 32: 8-bit blocks lose what lies around it.
    Outliers,
    /// Beyond what 8-bit blocks and halves hold, as far as the type goes.
    Large,
    /// Beyond what halves hold, where the type goes as far.
    BeyondHalf,
    /// One 1 in a row among zeros: the product is the other operand.
    Unit,
    /// All of this value.
    Constant(f32),
}

/// Data in its type, and what a device reads there.
pub struct Data {
    pub bytes: Vec<u8>,
    pub values: Vec<f32>,
}

impl Data {
    /// `rows` rows of `row` values. `None` where the type does not hold such values.
    pub fn new(dtype: DType, kind: Kind, row: usize, rows: usize, seed: u64) -> Option<Self> {
        let mut values = common::values(row * rows, seed);
        match kind {
            Kind::Fine => {}
            Kind::Outliers => values.iter_mut().step_by(32).for_each(|v| *v = 100.0),
            Kind::Large => {
                let by = if dtype == DType::F16 { 6e4 } else { 1e30 };
                values.iter_mut().for_each(|v| *v *= by);
            }
            Kind::BeyondHalf => values.iter_mut().for_each(|v| *v *= 2e5),
            Kind::Unit => {
                for (i, row_values) in values.chunks_mut(row).enumerate() {
                    row_values.fill(0.0);
                    row_values[(7 * i + 3) % row] = 1.0;
                }
            }
            Kind::Constant(value) => values.fill(value),
        }
        let bytes = if dtype.needs_importance() {
            quantize_with_importance(dtype, &values, row, &vec![1.0; row]).ok()?
        } else {
            quantize(dtype, &values, row).ok()?
        };
        let values = dequantize(dtype, &bytes).ok()?;
        let largest = values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        let held = values.iter().all(|v| v.is_finite());
        (held && (kind != Kind::BeyondHalf || largest > 65504.0)).then_some(Self { bytes, values })
    }
}
