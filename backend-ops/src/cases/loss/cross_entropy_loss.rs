//! `CROSS_ENTROPY_LOSS` and `CROSS_ENTROPY_LOSS_BACK`. Upstream's `test_cross_entropy_loss` and its `_back`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case of either.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropyLoss {
    /// The gradient, not the loss.
    pub back: bool,
    /// Type of all.
    pub dtype: DType,
    /// Shape of logits and labels.
    pub ne: [usize; 4],
}

impl Case for CrossEntropyLoss {
    fn op(&self) -> &'static str {
        match self.back {
            true => "CROSS_ENTROPY_LOSS_BACK",
            false => "CROSS_ENTROPY_LOSS",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let of = |name| Operand::new(name, self.dtype, self.ne);
        match self.back {
            true => vec![
                of("logits"),
                of("labels"),
                Operand::new("grad", DType::F32, [1; 4]),
            ],
            false => vec![
                of("logits").within(100.0).trained(),
                of("labels").within(100.0),
            ],
        }
    }

    /// The labels of a row sum to 1.
    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (logits, labels) = (leaves[0], leaves[1].soft_max()?);
        match self.back {
            true => leaves[2].cross_entropy_loss_back(logits, labels),
            false => logits.cross_entropy_loss(labels),
        }
    }
}

/// All.
pub(super) fn cases() -> Vec<CrossEntropyLoss> {
    // Upstream's, then ours: one class, lengths around 32, more rows than threads.
    const SHAPES: [[usize; 4]; 7] = [
        [10, 5, 4, 3],
        [30000, 1, 1, 1],
        [1, 1, 1, 1],
        [2, 33, 1, 1],
        [31, 7, 1, 2],
        [33, 5, 3, 1],
        [1025, 3, 1, 1],
    ];
    [false, true]
        .into_iter()
        .flat_map(|back| {
            SHAPES.map(|ne| CrossEntropyLoss {
                back,
                dtype: DType::F32,
                ne,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let [loss, back] = [0, 8].map(|i| cases()[i].name());
        assert_eq!(loss, "CROSS_ENTROPY_LOSS(type=f32,ne=[10,5,4,3])");
        assert_eq!(back, "CROSS_ENTROPY_LOSS_BACK(type=f32,ne=[30000,1,1,1])");
    }
}
