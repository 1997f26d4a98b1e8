//! `TIMESTEP_EMBEDDING`. Upstream's `test_timestep_embedding`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct TimestepEmbedding {
    /// Type of the steps.
    pub dtype: DType,
    /// Shape of the steps.
    pub ne_a: [usize; 4],
    /// Rows of an embedding.
    pub dim: usize,
    /// The longest period.
    pub max_period: usize,
    /// The largest step; upstream's are at most 1.
    pub steps: usize,
}

impl Case for TimestepEmbedding {
    fn op(&self) -> &'static str {
        "TIMESTEP_EMBEDDING"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("dim", self.dim)
            .with("max_period", self.max_period)
            .with_unless_default("steps", self.steps, 1)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let most = self.steps as f32;
        let range = Init::Uniform([if self.steps == 1 { -1.0 } else { 0.0 }, most]);
        vec![Operand::new("a", self.dtype, self.ne_a).init(range)]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].timestep_embedding(self.dim, self.max_period)
    }

    /// Upstream's, but for steps of a thousand: angles are rounded to f32, which is 2^-24 of them.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.steps == 1 { 1e-7 } else { 1e-6 }
    }
}

/// All.
pub(super) fn cases() -> Vec<TimestepEmbedding> {
    let case = |n, dim, max_period, steps| TimestepEmbedding {
        dtype: DType::F32,
        ne_a: [n, 1, 1, 1],
        dim,
        max_period,
        steps,
    };
    vec![
        case(2, 320, 10000, 1),
        // Ours: odd dimensions, whose last row is 0, and steps as models have them.
        case(1, 1, 10000, 1),
        case(1, 2, 1, 1),
        case(33, 31, 10000, 1000),
        case(5, 33, 100, 1000),
        case(3, 256, 10000, 1000),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "TIMESTEP_EMBEDDING(type=f32,ne_a=[2,1,1,1],dim=320,max_period=10000)"
        );
    }
}
