//! `SOLVE_TRI`: systems with a lower triangular matrix. Upstream's `test_solve_tri`.

use ggml_rs::{DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Layout, Leaves, boxed, laid_out};
use crate::data::{Init, Operand, uniform};
use crate::vars::Vars;

/// One SOLVE_TRI case.
#[derive(Clone, Debug)]
pub struct SolveTri {
    ne_lhs: [usize; 4],
    ne_rhs: [usize; 4],
    /// Ours: whether what is above the diagonal, which is not read, is NaN.
    poisoned: bool,
}

/// A lower triangle without small numbers on its diagonal, and zeros above it.
fn lower(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    triangle(operand, rng, 0.0)
}

/// The same with NaN above the diagonal.
fn poisoned(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    triangle(operand, rng, f32::NAN)
}

fn triangle(operand: &Operand, rng: &mut ChaCha8Rng, above: f32) -> Vec<f32> {
    let [n0, n1, n2, n3] = operand.ne;
    let mut values = uniform(rng, n0 * n1 * n2 * n3, [0.1, 1.0]);
    for (index, value) in values.iter_mut().enumerate() {
        if index % n0 > index / n0 % n1 {
            *value = above;
        }
    }
    values
}

impl Case for SolveTri {
    fn op(&self) -> &'static str {
        "SOLVE_TRI"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne_lhs", self.ne_lhs)
            .with("ne_rhs", self.ne_rhs)
            .with_unless_default("poisoned", self.poisoned, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let draw = if self.poisoned { poisoned } else { lower };
        vec![
            Operand::new("a", DType::F32, self.ne_lhs)
                .init(Init::Drawn(draw))
                .trained(),
            Operand::new("b", DType::F32, self.ne_rhs).trained(),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].solve_tri(leaves[1])
    }

    fn flops(&self) -> Option<f64> {
        let [n, _, n2, n3] = self.ne_lhs;
        // Half the square, a product and a sum for each.
        Some((n * (n + 1) * self.ne_rhs[0] * n2 * n3) as f64)
    }
}

/// `n` equations, `k` right sides, for each of these matrices.
fn systems(n: usize, k: usize, [n2, n3]: [usize; 2]) -> SolveTri {
    SolveTri {
        ne_lhs: [n, n, n2, n3],
        ne_rhs: [k, n, n2, n3],
        poisoned: false,
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<SolveTri> {
    const SYSTEMS: [(usize, usize, [usize; 2]); 24] = [
        (10, 3, [4, 3]),
        (11, 5, [1, 1]),
        (17, 9, [2, 4]),
        (30, 8, [7, 1]),
        (42, 10, [5, 2]),
        (64, 10, [2, 2]),
        (64, 64, [2, 2]),
        (79, 417, [5, 3]),
        (128, 32, [4, 2]),
        (80, 80, [2, 8]),
        (80, 79, [2, 8]),
        (80, 81, [2, 8]),
        (80, 80, [8, 8]),
        (80, 79, [8, 8]),
        (80, 81, [8, 8]),
        (84, 32, [4, 4]),
        (95, 40, [8, 8]),
        (100, 41, [4, 4]),
        (128, 31, [4, 4]),
        (128, 32, [4, 4]),
        (128, 32, [3, 4]),
        (128, 32, [4, 1]),
        (64, 200, [4, 4]),
        (64, 384, [4, 4]),
    ];
    SYSTEMS.map(|(n, k, more)| systems(n, k, more)).to_vec()
}

/// Ours: one equation, sizes around a SIMD group's width, NaN where nothing is read, other layouts.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let sizes = [(1, 1), (1, 33), (31, 1), (32, 7), (33, 33)].map(|(n, k)| systems(n, k, [2, 1]));
    let poisoned = SolveTri {
        poisoned: true,
        ..systems(33, 5, [2, 1])
    };
    boxed(sizes.to_vec())
        .chain(boxed(vec![poisoned]))
        .chain(laid_out([systems(33, 5, [2, 1])], Layout::OTHERS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "SOLVE_TRI(type=f32,ne_lhs=[10,10,4,3],ne_rhs=[3,10,4,3])"
        );
    }
}
