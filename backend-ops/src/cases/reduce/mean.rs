//! `MEAN`: of each row. Upstream's `test_mean`.

use ggml_rs::{DType, Tensor};

use super::sum::half_unit;
use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One MEAN case.
#[derive(Clone, Debug)]
pub struct Mean {
    dtype: DType,
    ne: [usize; 4],
    /// Ours: whether it is the mean of all elements.
    whole: bool,
}

impl Case for Mean {
    fn op(&self) -> &'static str {
        "MEAN"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with_unless_default("whole", self.whole, false)
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
        match self.whole {
            true => leaves[0].mean(),
            false => leaves[0].mean_rows(),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        half_unit(self.dtype)
    }
}

fn mean(ne: [usize; 4]) -> Mean {
    Mean {
        dtype: DType::F32,
        ne,
        whole: false,
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Mean> {
    const SHAPES: [[usize; 4]; 7] = [
        [10, 5, 4, 3],
        [33, 1, 1, 1],
        [33, 256, 1, 1],
        [32769, 1, 1, 1],
        [32, 1, 1, 1],
        [32, 256, 1, 1],
        [32768, 1, 1, 1],
    ];
    SHAPES.map(mean).to_vec()
}

/// Ours: of all elements, one value, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let types = [DType::F32, DType::F16, DType::BF16].map(|dtype| Mean {
        dtype,
        ..mean([33, 5, 3, 2])
    });
    let whole = types.clone().map(|case| Mean {
        whole: true,
        ..case
    });
    boxed(vec![mean([1; 4]), mean([1, 33, 1, 2]), mean([31, 3, 2, 1])])
        .chain(boxed(types.to_vec()))
        .chain(boxed(whole.to_vec()))
        .chain(laid_out(types.clone(), Layout::OTHERS))
        .chain(with_extremes(types))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(cases()[3].name(), "MEAN(type=f32,ne=[32769,1,1,1])");
    }
}
