//! `MUL_MAT_HADAMARD`: a product with a Hadamard matrix that is said to be one, so that devices transform rows instead.
//! Upstream's `test_mul_mat_hadamard`.

use ggml_rs::{DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Choices, Leaves, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One MUL_MAT_HADAMARD case.
#[derive(Clone, Debug)]
pub struct Hadamard {
    type_b: DType,
    m: usize,
    n: usize,
    /// Rows and columns of the matrix.
    k: usize,
    bs: [usize; 2],
}

impl Case for Hadamard {
    fn op(&self) -> &'static str {
        "MUL_MAT_HADAMARD"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_a", DType::F32)
            .with("type_b", self.type_b)
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("bs", self.bs)
            .with("nr", [1, 1])
            .with("per", [0, 1, 2, 3])
            .with("k_v", 0)
            .with("o", 1)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [b2, b3] = self.bs;
        vec![
            Operand::new("a", DType::F32, [self.k, self.m, b2, b3]).init(Init::Drawn(hadamard)),
            Operand::new("b", self.type_b, [self.k, self.n, b2, b3]),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| vec![&mut case.m, &mut case.n])
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].mul_mat_hadamard(leaves[1])
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-4
    }

    fn flops(&self) -> Option<f64> {
        let matrices = self.bs[0] * self.bs[1];
        Some(2.0 * (self.m * self.n * self.k * matrices) as f64)
    }

    /// No op of ggml has the name: it says what devices make of a MUL_MAT.
    fn is_fusion(&self) -> bool {
        true
    }
}

/// The normalized matrix: the sign is the parity of the bits that row and column have in common.
fn hadamard(operand: &Operand, _rng: &mut ChaCha8Rng) -> Vec<f32> {
    let [columns, rows, n2, n3] = operand.ne;
    let scale = 1.0 / (columns as f32).sqrt();
    let sign = |shared: usize| [1.0, -1.0][shared.count_ones() as usize % 2];
    let matrix =
        (0..rows).flat_map(|row| (0..columns).map(move |column| scale * sign(row & column)));
    matrix.collect::<Vec<_>>().repeat(n2 * n3)
}

pub(crate) fn case(type_b: DType, k: usize, n: usize, bs: [usize; 2]) -> Hadamard {
    Hadamard {
        type_b,
        m: k,
        n,
        k,
        bs,
    }
}

/// Upstream's: one row of some lengths, several rows, several matrices.
pub(super) fn cases() -> Vec<Hadamard> {
    let mut cases = [128, 64, 256, 512]
        .map(|k| case(DType::F32, k, 1, [1, 1]))
        .to_vec();
    cases.push(case(DType::F32, 128, 32, [1, 1]));
    cases.push(case(DType::F32, 128, 4, [2, 3]));
    cases
}

/// Every length from the smallest on, ragged numbers of rows, and halves.
pub(super) fn ours() -> Vec<Hadamard> {
    let mut cases = Vec::new();
    for type_b in [DType::F32, DType::F16] {
        cases.extend((0..=11).map(|log| case(type_b, 1 << log, 3, [1, 1])));
        cases.extend([64, 256].map(|k| case(type_b, k, 33, [2, 1])));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[5].name(),
            "MUL_MAT_HADAMARD(type_a=f32,type_b=f32,m=128,n=4,k=128,bs=[2,3],nr=[1,1],per=[0,1,2,3],k_v=0,o=1)"
        );
    }
}
