//! `SILU_BACK`: SILU's gradient. Upstream's `test_silu_back`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::Operand;
use crate::vars::Vars;

/// One SILU_BACK case.
#[derive(Clone, Debug)]
pub struct SiluBack {
    dtype: DType,
    ne: [usize; 4],
}

impl Case for SiluBack {
    fn op(&self) -> &'static str {
        "SILU_BACK"
    }

    fn params(&self) -> String {
        // The op has no epsilon, but upstream's case has.
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("eps", 1e-6_f32)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        ["a", "grad"]
            .map(|name| Operand::new(name, self.dtype, self.ne))
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].silu_back(leaves[1])
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// Upstream's case.
pub(super) fn cases() -> Vec<SiluBack> {
    vec![SiluBack {
        dtype: DType::F32,
        ne: [64, 5, 4, 3],
    }]
}

/// Ours: ragged rows, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let both = [DType::F32, DType::F16].map(|dtype| SiluBack {
        dtype,
        ne: [33, 3, 2, 1],
    });
    boxed(both.to_vec())
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
            "SILU_BACK(type=f32,ne=[64,5,4,3],eps=0.000001)"
        );
    }
}
