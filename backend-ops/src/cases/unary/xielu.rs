//! `XIELU`: a parabola on the right, an exponential on the left. Upstream's `test_xielu`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One XIELU case, with upstream's parameters.
#[derive(Clone, Debug)]
pub struct Xielu {
    dtype: DType,
    ne: [usize; 4],
}

impl Case for Xielu {
    fn op(&self) -> &'static str {
        "XIELU"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (alpha_n, alpha_p, beta, eps) = (4.0, 20.0, 0.5, 1e-7);
        leaves[0].xielu(alpha_n, alpha_p, beta, eps)
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Xielu> {
    let shapes = [[10, 5, 4, 3], [512, 16, 1, 1]].into_iter();
    shapes
        .flat_map(|ne| [DType::F32, DType::F16].map(|dtype| Xielu { dtype, ne }))
        .collect()
}

/// Ours: ragged rows, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let both = [DType::F32, DType::F16].map(|dtype| Xielu {
        dtype,
        ne: [33, 3, 2, 1],
    });
    let one = Xielu {
        dtype: DType::F32,
        ne: [1, 31, 1, 1],
    };
    boxed(both.to_vec())
        .chain(boxed(vec![one]))
        .chain(laid_out(both.clone(), Layout::OTHERS))
        .chain(with_extremes(both))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(cases()[1].name(), "XIELU(type=f16,ne=[10,5,4,3])");
    }
}
