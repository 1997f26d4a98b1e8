//! `ADD`: `dst = a + b`, with `b` repeated to `a`'s shape. Upstream's `test_bin_bcast`.

use ggml_rs::{Builder, DType, Tensor};

use super::{Case, Choices};
use crate::data::{Operand, OperandData, stored_as};
use crate::vars::Vars;

/// One ADD case: `b` has shape `ne`, `a` is `nr` times as large in each dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    /// Type of both operands and the result.
    pub dtype: DType,
    /// Shape of `b`.
    pub ne: [usize; 4],
    /// How often `b` repeats.
    pub nr: [usize; 4],
}

impl Add {
    fn shape(&self) -> [usize; 4] {
        std::array::from_fn(|i| self.ne[i] * self.nr[i])
    }
}

impl Case for Add {
    fn op(&self) -> &'static str {
        "ADD"
    }

    fn params(&self) -> String {
        // The last three are upstream's fused, permuted and overlapping variants, which are not ported yet.
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("nr", self.nr)
            .with("nf", 1)
            .with("perm1", false)
            .with("src_overlap", false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("a", self.dtype, self.shape()),
            Operand::new("b", self.dtype, self.ne),
        ]
    }

    fn build<'g>(
        &self,
        _graph: Builder<'g>,
        operands: &[Tensor<'g>],
        _choices: Choices,
    ) -> ggml_rs::Result<Tensor<'g>> {
        operands[0].add(operands[1])
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Vec<f64>> {
        let (a, b) = (operands[0].values(), operands[1].values());
        let ne = self.shape();
        let sum = |(i, &value): (usize, &f32)| value + b[repeated_index(i, ne, self.ne)];
        let sums: Vec<f32> = a.iter().enumerate().map(sum).collect();
        // Rounded to the result's type: half's own rounding is about as large as the limit.
        Ok(stored_as(self.dtype, &sums)?
            .into_iter()
            .map(f64::from)
            .collect())
    }
}

/// Where in a tensor of shape `small` the element lies that repeats to element `index` of shape `large`.
fn repeated_index(mut index: usize, large: [usize; 4], small: [usize; 4]) -> usize {
    let mut at = 0;
    let mut stride = 1;
    for (large, small) in large.into_iter().zip(small) {
        at += index % large % small * stride;
        index /= large;
        stride *= small;
    }
    at
}

/// Upstream's shapes without permutation, overlap and fusion, up to a size that a simulated device runs quickly.
#[must_use]
pub fn cases() -> Vec<Add> {
    const SHAPES: [([usize; 4], [usize; 4]); 15] = [
        ([1, 1, 8, 1], [1, 1, 1, 1]),
        ([1, 1, 1, 1], [32, 1, 1, 1]),
        ([10, 5, 1, 1], [1, 1, 1, 1]),
        ([10, 5, 4, 1], [1, 1, 1, 1]),
        ([10, 5, 4, 3], [1, 1, 1, 1]),
        ([10, 5, 4, 3], [2, 1, 1, 1]),
        ([10, 5, 4, 3], [1, 2, 1, 1]),
        ([10, 5, 4, 3], [1, 1, 2, 1]),
        ([10, 5, 4, 3], [1, 1, 1, 2]),
        ([10, 5, 4, 3], [1, 1, 2, 2]),
        ([10, 5, 4, 3], [1, 2, 2, 2]),
        ([10, 5, 4, 3], [2, 2, 2, 2]),
        ([1280, 1, 1, 1], [1, 1, 1, 1]),
        ([1280, 1, 1, 1], [1, 16, 16, 1]),
        ([640, 1, 1, 1], [1, 1, 1, 1]),
    ];
    [DType::F16, DType::F32]
        .into_iter()
        .flat_map(|dtype| SHAPES.map(|(ne, nr)| Add { dtype, ne, nr }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "ADD(type=f16,ne=[1,1,8,1],nr=[1,1,1,1],nf=1,perm1=0,src_overlap=0)"
        );
    }

    #[test]
    fn indices_repeat_in_every_dimension() {
        let (large, small) = ([4, 2, 1, 2], [2, 1, 1, 2]);
        let all: Vec<_> = (0..16).map(|i| repeated_index(i, large, small)).collect();
        assert_eq!(all, [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3]);
    }
}
