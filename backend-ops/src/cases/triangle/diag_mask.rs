//! `DIAG_MASK_INF` and `DIAG_MASK_ZERO`: what is right of a diagonal becomes minus infinity, or zero. Upstream's
//! `test_diag_mask_inf`; it has no case of the other.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One case of either op.
#[derive(Clone, Debug)]
pub struct DiagMask {
    ne: [usize; 4],
    n_past: usize,
    /// Ours: whether the mask is zeros.
    zero: bool,
    /// Ours: whether the result is written over the operand.
    in_place: bool,
}

impl Case for DiagMask {
    fn op(&self) -> &'static str {
        match self.zero {
            true => "DIAG_MASK_ZERO",
            false => "DIAG_MASK_INF",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("n_past", self.n_past)
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", DType::F32, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match (self.zero, self.in_place) {
            (false, false) => leaves[0].diag_mask_inf(self.n_past),
            (false, true) => leaves[0].diag_mask_inf_inplace(self.n_past),
            (true, false) => leaves[0].diag_mask_zero(self.n_past),
            (true, true) => leaves[0].diag_mask_zero_inplace(self.n_past),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
    }
}

fn mask(ne: [usize; 4], n_past: usize, zero: bool) -> DiagMask {
    DiagMask {
        ne,
        n_past,
        zero,
        in_place: false,
    }
}

const SHAPES: [[usize; 4]; 3] = [[10, 10, 1, 1], [10, 10, 3, 1], [10, 10, 3, 2]];

/// Upstream's cases.
pub(super) fn cases() -> Vec<DiagMask> {
    SHAPES.map(|ne| mask(ne, 5, false)).to_vec()
}

/// Ours: masks of zeros, nothing masked, everything but a column, in place, ragged rows, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let mut plain = SHAPES.map(|ne| mask(ne, 5, true)).to_vec();
    let mut others = Vec::new();
    for zero in [false, true] {
        let one = mask([33, 31, 2, 2], 1, zero);
        plain.extend([
            mask([1; 4], 0, zero),
            mask([33, 5, 1, 1], 40, zero),
            mask([33, 5, 1, 1], 0, zero),
            one.clone(),
            DiagMask {
                in_place: true,
                ..one.clone()
            },
        ]);
        others.push(one);
    }
    boxed(plain)
        .chain(laid_out(others.clone(), Layout::OTHERS))
        .chain(with_extremes(others))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[2].name(),
            "DIAG_MASK_INF(type=f32,ne=[10,10,3,2],n_past=5)"
        );
    }
}
