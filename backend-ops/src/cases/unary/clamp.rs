//! `CLAMP`: the nearest value of an interval. Upstream's `test_clamp`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, smaller, with_infinities};
use crate::data::Operand;
use crate::vars::Vars;

/// One CLAMP case.
#[derive(Clone, Debug)]
pub struct Clamp {
    dtype: DType,
    ne: [usize; 4],
    min: f32,
    max: f32,
    /// Ours: whether the result is written over the operand.
    in_place: bool,
}

impl Clamp {
    fn new(dtype: DType, ne: [usize; 4]) -> Self {
        Self {
            dtype,
            ne,
            min: -0.5,
            max: 0.5,
            in_place: false,
        }
    }
}

impl Case for Clamp {
    fn op(&self) -> &'static str {
        "CLAMP"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("min", self.min)
            .with("max", self.max)
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.in_place {
            true => leaves[0].clamp_inplace(self.min, self.max),
            false => leaves[0].clamp(self.min, self.max),
        }
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Clamp> {
    const SHAPES: [[usize; 4]; 3] = [[10, 5, 4, 3], [7, 1, 5, 3], [1024, 1024, 1, 1]];
    let types = [DType::F16, DType::F32].into_iter();
    types
        .flat_map(|dtype| SHAPES.map(|ne| Clamp::new(dtype, ne)))
        .collect()
}

/// NaN becomes one of the bounds, the greater one on the CPU, the least on Metal: the extremes have none.
///
/// Ours: rows of one value, one bound, in place, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let both = [DType::F32, DType::F16].map(|dtype| Clamp::new(dtype, [33, 3, 2, 1]));
    let [case, _] = &both;
    let plain = vec![
        Clamp::new(DType::F32, [1, 31, 1, 1]),
        Clamp {
            max: f32::INFINITY,
            ..case.clone()
        },
        Clamp {
            min: 0.25,
            max: 0.25,
            ..case.clone()
        },
        Clamp {
            in_place: true,
            ..case.clone()
        },
    ];
    boxed(plain)
        .chain(laid_out(both.clone(), Layout::OTHERS))
        .chain(with_infinities(both))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "CLAMP(type=f16,ne=[10,5,4,3],min=-0.500000,max=0.500000)"
        );
    }
}
