//! `PAD_REFLECT_1D`: rows mirrored at their ends. Upstream's `test_pad_reflect_1d`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One PAD_REFLECT_1D case.
#[derive(Clone, Debug)]
pub struct PadReflect1d {
    dtype: DType,
    /// Upstream prints four dimensions and makes a matrix of the first two.
    ne_a: [usize; 4],
    pad: [usize; 2],
    /// Ours: whether the tensor has all four.
    whole: bool,
}

impl Case for PadReflect1d {
    fn op(&self) -> &'static str {
        "PAD_REFLECT_1D"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("pad_0", self.pad[0])
            .with("pad_1", self.pad[1])
            .with_unless_default("whole", self.whole, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [n0, n1, ..] = self.ne_a;
        let ne = match self.whole {
            true => self.ne_a,
            false => [n0, n1, 1, 1],
        };
        vec![Operand::new("a", self.dtype, ne)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].pad_reflect_1d(self.pad[0], self.pad[1])
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<PadReflect1d> {
    [[512, 34, 2, 1], [3000, 384, 4, 1]]
        .map(|ne_a| PadReflect1d {
            dtype: DType::F32,
            ne_a,
            pad: [10, 9],
            whole: false,
        })
        .to_vec()
}

/// Ours: four dimensions, nothing to pad, as much as there is, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |ne_a, pad| PadReflect1d {
        dtype: DType::F32,
        ne_a,
        pad,
        whole: true,
    };
    let plain = vec![
        case([1; 4], [0, 0]),
        case([2, 3, 1, 1], [1, 1]),
        case([33, 3, 2, 2], [32, 32]),
        case([1025, 2, 1, 1], [0, 3]),
    ];
    let one = case([33, 3, 2, 2], [3, 5]);
    boxed(plain)
        .chain(laid_out([one.clone()], Layout::OTHERS))
        .chain(with_extremes([one]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "PAD_REFLECT_1D(type=f32,ne_a=[512,34,2,1],pad_0=10,pad_1=9)"
        );
    }
}
