//! `ADD`: `dst = a + b`, with `b` repeated to `a`'s shape. Upstream's `test_bin_bcast`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
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

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne.iter_mut().chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].add(leaves[1])
    }
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
}
