//! Chains around one tensor that backends fuse: `RELU_SQR`, `SOFTCAP`, `SNAKE_FUSE`. Upstream's cases of these names.

use std::f32::consts::PI;

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves, Relaxation, as_floats, boxed};
use crate::data::Operand;
use crate::vars::Vars;

/// `relu(a)^2`.
#[derive(Clone, Debug)]
pub struct ReluSqr {
    dtype: DType,
    ne: [usize; 4],
}

impl Case for ReluSqr {
    fn op(&self) -> &'static str {
        "RELU_SQR"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne)]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].relu()?.sqr()
    }

    fn is_fusion(&self) -> bool {
        true
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// `tanh(a / cap) * cap`.
#[derive(Clone, Debug)]
pub struct Softcap {
    dtype: DType,
    ne: [usize; 4],
    softcap: f32,
}

impl Case for Softcap {
    fn op(&self) -> &'static str {
        "SOFTCAP"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("softcap", self.softcap)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne).trained()]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let scaled = leaves[0].scale(1.0 / self.softcap)?;
        scaled.tanh()?.scale(self.softcap)
    }

    fn is_fusion(&self) -> bool {
        true
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// `x + sin(a * x)^2 / b`, with an `a` and a `1 / b` for each row.
#[derive(Clone, Debug)]
pub struct Snake {
    dtype: DType,
    ne: [usize; 4],
}

impl Case for Snake {
    fn op(&self) -> &'static str {
        "SNAKE_FUSE"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let per_row = [1, self.ne[1], 1, 1];
        vec![
            Operand::new("x", self.dtype, self.ne).within(PI),
            Operand::new("a", DType::F32, per_row),
            Operand::new("inv_b", DType::F32, per_row),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (x, a, inverse) = (leaves[0], leaves[1], leaves[2]);
        x.add(x.mul(a)?.sin()?.sqr()?.mul(inverse)?)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.dtype {
            // Every step of the chain rounds to the type.
            DType::BF16 => 5e-3,
            DType::F16 => 5e-5,
            _ => 1e-7,
        }
    }

    fn is_fusion(&self) -> bool {
        true
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    const SNAKES: [[usize; 4]; 8] = [
        [5, 7, 1, 1],
        [33, 32, 1, 1],
        [1025, 13, 1, 1],
        [128, 16, 1, 1],
        [256, 192, 1, 1],
        [64, 32, 2, 1],
        [64, 32, 1, 2],
        [64, 32, 2, 3],
    ];
    let squares = [DType::F16, DType::F32]
        .into_iter()
        .flat_map(|dtype| [[128, 2, 2, 2], [5, 7, 11, 13]].map(|ne| ReluSqr { dtype, ne }));
    let snakes = [DType::F32, DType::F16, DType::BF16].into_iter();
    let snakes = snakes.flat_map(|dtype| SNAKES.map(|ne| Snake { dtype, ne }));
    let cap = Softcap {
        dtype: DType::F32,
        ne: [10, 10, 10, 10],
        softcap: 50.0,
    };
    boxed(squares.collect())
        .chain(boxed(snakes.collect()))
        .chain(boxed(vec![cap]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(|case| case.name()).collect();
        assert_eq!(names[0], "RELU_SQR(type=f16,ne=[128,2,2,2])");
        assert_eq!(names[4], "SNAKE_FUSE(type=f32,ne=[5,7,1,1])");
        assert_eq!(
            names[28],
            "SOFTCAP(type=f32,ne=[10,10,10,10],softcap=50.000000)"
        );
    }
}
