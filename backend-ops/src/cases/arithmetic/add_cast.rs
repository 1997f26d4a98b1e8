//! `ADD` of a quantized or half-precision `a`, into another type or into its own. Upstream has no such case.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves, boxed, smaller};
use crate::data::{Operand, OperandData, stored_as};
use crate::vars::Vars;

/// One such case.
#[derive(Clone, Debug)]
pub struct AddCast {
    dtype: DType,
    type_dst: DType,
    ne: [usize; 4],
}

impl Case for AddCast {
    fn op(&self) -> &'static str {
        "ADD"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("type_b", DType::F32)
            .with("type_dst", self.type_dst)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("a", self.dtype, self.ne),
            Operand::new("b", DType::F32, self.ne),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.dtype == self.type_dst {
            true => leaves[0].add(leaves[1]),
            false => leaves[0].add_cast(leaves[1], self.type_dst),
        }
    }

    /// A quantized sum is what the quantizer makes of the f32 sum.
    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let pairs = operands[0].values().iter().zip(operands[1].values());
        let sums: Vec<f32> = pairs.map(|(a, b)| a + b).collect();
        let stored = stored_as(self.type_dst, &sums)?;
        Ok(Some(stored.into_iter().map(f64::from).collect()))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.type_dst {
            DType::F32 => 1e-7,
            // The rounding of what lies between two values of the type.
            DType::F16 | DType::BF16 => 1e-5,
            _ => 1e-4,
        }
    }
}

/// Ours: quantized types that have a row function, into themselves and into F32, and halves into F32.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    const QUANTIZED: [DType; 5] = [
        DType::Q4_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::Q4_K,
        DType::Q6_K,
    ];
    let case = |dtype, type_dst| AddCast {
        dtype,
        type_dst,
        ne: [256, 3, 2, 1],
    };
    let quantized = QUANTIZED.into_iter();
    let quantized = quantized.flat_map(|dtype| [case(dtype, dtype), case(dtype, DType::F32)]);
    let halves = [DType::F16, DType::BF16].map(|dtype| case(dtype, DType::F32));
    boxed(quantized.chain(halves).collect()).collect()
}
