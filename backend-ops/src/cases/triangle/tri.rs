//! `TRI`: one triangle of a matrix. Upstream's `test_tri`.

use ggml_rs::graph::TriPart;
use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One TRI case.
#[derive(Clone, Debug)]
pub struct Tri {
    ne: [usize; 4],
    part: TriPart,
}

impl Case for Tri {
    fn op(&self) -> &'static str {
        "TRI"
    }

    fn params(&self) -> String {
        // Upstream prints ggml's number.
        let number = match self.part {
            TriPart::UpperDiag => ggml_sys::GGML_TRI_TYPE_UPPER_DIAG,
            TriPart::Upper => ggml_sys::GGML_TRI_TYPE_UPPER,
            TriPart::LowerDiag => ggml_sys::GGML_TRI_TYPE_LOWER_DIAG,
            TriPart::Lower => ggml_sys::GGML_TRI_TYPE_LOWER,
            other => unreachable!("{other:?} has no cases"),
        };
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("tri_type", number as usize)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", DType::F32, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].tri(self.part)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
    }
}

const PARTS: [TriPart; 4] = [
    TriPart::Lower,
    TriPart::LowerDiag,
    TriPart::Upper,
    TriPart::UpperDiag,
];

fn each(ne: [usize; 4]) -> Vec<Tri> {
    PARTS.map(|part| Tri { ne, part }).to_vec()
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Tri> {
    each([10, 10, 4, 3])
}

/// Ours: one value, ragged matrices, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let ragged = [[1, 1, 1, 1], [31, 31, 2, 1], [33, 33, 1, 2]].map(each);
    boxed(ragged.concat())
        .chain(laid_out(each([33, 33, 2, 1]), Layout::OTHERS))
        .chain(with_extremes(each([33, 33, 2, 1])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(cases()[0].name(), "TRI(type=f32,ne=[10,10,4,3],tri_type=3)");
    }
}
