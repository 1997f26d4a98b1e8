//! Matrix products.

pub(crate) mod hadamard;
mod mul_mat;
pub(crate) mod mul_mat_id;
mod out_prod;
mod vec_fusion;

pub use mul_mat::MulMat;
pub use mul_mat_id::MulMatId;
pub use out_prod::OutProd;

use crate::case::{Case, boxed};

/// Floating point operations of `batches` products, a multiply-add counting as two.
fn product_flops([m, n, k]: [usize; 3], batches: usize) -> f64 {
    2.0 * [m, n, k, batches]
        .map(|dim| dim as f64)
        .iter()
        .product::<f64>()
}

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(mul_mat::cases())
        .chain(boxed(mul_mat::ours()))
        .chain(boxed(hadamard::cases()))
        .chain(boxed(hadamard::ours()))
        .chain(boxed(mul_mat_id::cases()))
        .chain(boxed(mul_mat_id::ours()))
        .chain(boxed(mul_mat_id::fusion::cases()))
        .chain(boxed(mul_mat_id::fusion::ours()))
        .chain(boxed(vec_fusion::cases()))
        .chain(boxed(vec_fusion::ours()))
        .chain(boxed(out_prod::upstream()))
        .chain(boxed(out_prod::ours()))
        .collect()
}

/// The 37 OUT_PROD cases that must all pass.
pub(super) fn gate() -> Vec<Box<dyn Case>> {
    boxed(out_prod::gate()).collect()
}

/// OUT_PROD with operands beyond half's range.
pub(super) fn range() -> Vec<Box<dyn Case>> {
    boxed(out_prod::range()).collect()
}

/// OUT_PROD held to the rounding of F32.
pub(super) fn precise() -> Vec<Box<dyn Case>> {
    boxed(out_prod::precise()).collect()
}

/// MUL_MAT_ID in every staging against sums in f64.
pub(super) fn ground_truth() -> Vec<Box<dyn Case>> {
    boxed(mul_mat_id::ground_truth()).collect()
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType::{F32, Q4_K};

    use super::*;

    #[test]
    fn every_product_counts_its_multiply_adds_twice() {
        let mul_mat = MulMat {
            bs: [3, 2],
            nr: [2, 1],
            ..MulMat::new(F32, [5, 7, 11])
        };
        assert_eq!(mul_mat.flops(), Some(2.0 * (5 * 7 * 11 * 12) as f64));
        let out_prod = OutProd::new(Q4_K, F32, [256, 7, 11]).batched([3, 1], [2, 4]);
        assert_eq!(
            out_prod.flops(),
            Some(2.0 * (256 * 7 * 11 * 3 * 2 * 4) as f64)
        );
        let experts = mul_mat_id::experts(8, 3, false);
        let mul_mat_id = MulMatId::new(F32, experts, [5, 7, 11]);
        // Each of 7 tokens meets 3 of the 8 matrices.
        assert_eq!(mul_mat_id.flops(), Some(2.0 * (5 * 7 * 11 * 3) as f64));
    }

    #[test]
    fn flops_beyond_32_bits_are_not_cut() {
        let large = OutProd::new(F32, F32, [5120, 1024, 17408]);
        assert_eq!(large.flops(), Some(182_536_110_080.0));
    }
}
