//! `LEAKY_RELU`: a small slope where values are negative. Upstream's `test_leaky_relu`, which works in place.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One LEAKY_RELU case.
#[derive(Clone, Debug)]
pub struct LeakyRelu {
    dtype: DType,
    ne_a: [usize; 4],
    negative_slope: f32,
    /// Ours where it is not.
    in_place: bool,
}

impl LeakyRelu {
    fn new(dtype: DType, ne_a: [usize; 4]) -> Self {
        Self {
            dtype,
            ne_a,
            negative_slope: 0.1,
            in_place: true,
        }
    }
}

impl Case for LeakyRelu {
    fn op(&self) -> &'static str {
        "LEAKY_RELU"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("negative_slope", self.negative_slope)
            .with_unless_default("inplace", self.in_place, true)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne_a)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.in_place {
            true => leaves[0].leaky_relu_inplace(self.negative_slope),
            false => leaves[0].leaky_relu(self.negative_slope),
        }
    }
}

/// Upstream's cases; the last of them repeats the first of F32.
pub(super) fn cases() -> Vec<LeakyRelu> {
    const SHAPES: [[usize; 4]; 3] = [[10, 5, 4, 3], [7, 1, 5, 3], [1024, 1024, 1, 1]];
    let types = [DType::F16, DType::F32].into_iter();
    let grid = types.flat_map(|dtype| SHAPES.map(|ne| LeakyRelu::new(dtype, ne)));
    grid.chain([LeakyRelu::new(DType::F32, SHAPES[0])])
        .collect()
}

/// Ours: not in place, other slopes, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let both = [DType::F32, DType::F16].map(|dtype| LeakyRelu {
        in_place: false,
        ..LeakyRelu::new(dtype, [33, 3, 2, 1])
    });
    let [case, half] = &both;
    let plain = vec![
        case.clone(),
        half.clone(),
        LeakyRelu {
            negative_slope: 0.0,
            ..case.clone()
        },
        LeakyRelu {
            negative_slope: -1.5,
            ..case.clone()
        },
    ];
    boxed(plain)
        .chain(laid_out(both.clone(), Layout::OTHERS))
        .chain(with_extremes(both))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "LEAKY_RELU(type=f16,ne_a=[10,5,4,3],negative_slope=0.100000)"
        );
    }
}
