//! `SCALE`: times a number, plus a number. Upstream's `test_scale`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::Operand;
use crate::vars::Vars;

/// One SCALE case.
#[derive(Clone, Debug)]
pub struct Scale {
    dtype: DType,
    ne: [usize; 4],
    scale: f32,
    bias: f32,
    inplace: bool,
}

impl Scale {
    fn new(dtype: DType, ne: [usize; 4], bias: f32) -> Self {
        Self {
            dtype,
            ne,
            scale: 2.0,
            bias,
            inplace: false,
        }
    }
}

impl Case for Scale {
    fn op(&self) -> &'static str {
        "SCALE"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("scale", self.scale)
            .with("bias", self.bias)
            .with("inplace", self.inplace)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.inplace {
            true => leaves[0].scale_bias_inplace(self.scale, self.bias),
            false => leaves[0].scale_bias(self.scale, self.bias),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.dtype {
            // Ours: BF16's rounding, where the CPU rounds a value that our reference rounds to its neighbour.
            DType::BF16 => 1e-5,
            _ => 1e-7,
        }
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
pub(super) fn cases() -> Vec<Scale> {
    let case = |ne, bias| Scale::new(DType::F32, ne, bias);
    vec![
        case([10, 10, 10, 10], 0.0),
        case([10, 10, 10, 10], 1.0),
        Scale {
            inplace: true,
            ..case([10, 10, 10, 10], 1.0)
        },
        case([100, 10, 10, 10], 1.0),
    ]
}

/// Ours: ragged rows, other types, factors beyond the ordinary, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |dtype| Scale::new(dtype, [33, 3, 2, 1], 1.0);
    let shapes = [[1, 1, 1, 1], [31, 1, 1, 1]].map(|ne| Scale::new(DType::F32, ne, 0.5));
    let factors = [0.0, -1e-30, f32::MAX].map(|scale| Scale {
        scale,
        bias: 0.0,
        ..case(DType::F32)
    });
    let types = [case(DType::F32), case(DType::F16), case(DType::BF16)];
    boxed(types.to_vec())
        .chain(boxed(shapes.to_vec()))
        .chain(boxed(factors.to_vec()))
        .chain(laid_out([case(DType::F32)], Layout::OTHERS))
        .chain(with_extremes(types))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[2].name(),
            "SCALE(type=f32,ne=[10,10,10,10],scale=2.000000,bias=1.000000,inplace=1)"
        );
    }
}
