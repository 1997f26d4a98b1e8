//! `DIAG`: matrices with rows on their diagonals. Upstream's `test_diag`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::Operand;
use crate::vars::Vars;

/// One DIAG case.
#[derive(Clone, Debug)]
pub struct Diag {
    dtype: DType,
    ne: [usize; 4],
}

impl Case for Diag {
    fn op(&self) -> &'static str {
        "DIAG"
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
        leaves[0].diag()
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

fn each(shapes: &[[usize; 4]]) -> Vec<Diag> {
    let dtype = DType::F32;
    shapes.iter().map(|&ne| Diag { dtype, ne }).collect()
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Diag> {
    each(&[[10, 1, 4, 3], [79, 1, 19, 13], [256, 1, 8, 16]])
}

/// Ours: one value, ragged rows, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let half = Diag {
        dtype: DType::F16,
        ne: [33, 1, 2, 1],
    };
    boxed(each(&[[1; 4], [31, 1, 1, 1], [33, 1, 2, 1]]))
        .chain(boxed(vec![half]))
        .chain(laid_out(each(&[[33, 1, 2, 2]]), Layout::OTHERS))
        .chain(with_extremes(each(&[[33, 1, 2, 2]])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(cases()[1].name(), "DIAG(type=f32,ne=[79,1,19,13])");
    }
}
