//! `SUM`: of all elements. Upstream's `test_sum`.
//!
//! ggml-rs sums rows first and their sums afterwards, and copies what is not contiguous or not F32: these graphs are what it makes of
//! one call.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::{Init, Operand};
use crate::vars::Vars;

const UNPERMUTED: [usize; 4] = [0; 4];

/// One SUM case.
#[derive(Clone, Debug)]
pub struct Sum {
    dtype: DType,
    ne: [usize; 4],
    permute: [usize; 4],
}

impl Case for Sum {
    fn op(&self) -> &'static str {
        "SUM"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with_unless_default("permute", self.permute, UNPERMUTED)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        // Not centred, so that sums do not cancel.
        let a = Operand::new("a", self.dtype, self.ne).init(Init::Uniform([-0.9, 1.1]));
        vec![a.trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.permute {
            UNPERMUTED => leaves[0].sum(),
            axes => leaves[0].permute(axes)?.sum(),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        half_unit(self.dtype)
    }
}

/// The limit on one value: upstream's, or the square of half a unit of a type that it is rounded to.
pub(super) fn half_unit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2.0_f64.powi(-16),
        DType::F16 => 2.0_f64.powi(-22),
        _ => 1e-7,
    }
}

fn sum(ne: [usize; 4], permute: [usize; 4]) -> Sum {
    Sum {
        dtype: DType::F32,
        ne,
        permute,
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Sum> {
    let mut cases = vec![sum([10, 5, 4, 3], UNPERMUTED)];
    let orders = [[0, 2, 1, 3], [0, 3, 2, 1], [0, 1, 3, 2]];
    cases.extend(orders.map(|axes| sum([11, 5, 6, 3], axes)));
    cases.extend([1, 1024, 256].map(|rows| sum([33, rows, 1, 1], UNPERMUTED)));
    cases.push(sum([33, 256, 1, 1], [1, 0, 2, 3]));
    cases
}

/// Ours: one value, columns, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let shapes = [
        [1, 1, 1, 1],
        [1, 1025, 1, 1],
        [31, 3, 2, 2],
        [32769, 1, 1, 1],
    ];
    let types = [DType::F32, DType::F16, DType::BF16].map(|dtype| Sum {
        dtype,
        ..sum([33, 3, 2, 1], UNPERMUTED)
    });
    boxed(shapes.map(|ne| sum(ne, UNPERMUTED)).to_vec())
        .chain(boxed(types.to_vec()))
        .chain(laid_out(types.clone(), Layout::OTHERS))
        .chain(with_extremes(types))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(cases()[0].name(), "SUM(type=f32,ne=[10,5,4,3])");
        assert_eq!(
            cases()[1].name(),
            "SUM(type=f32,ne=[11,5,6,3],permute=[0,2,1,3])"
        );
    }
}
