//! Matrix products.

mod hadamard;
mod mul_mat;
mod mul_mat_id;
mod out_prod;
mod vec_fusion;

pub use mul_mat::MulMat;
pub use mul_mat_id::MulMatId;
pub use out_prod::OutProd;

use crate::case::{Case, boxed};

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

/// MUL_MAT_ID in every staging against sums in f64.
pub(super) fn ground_truth() -> Vec<Box<dyn Case>> {
    boxed(mul_mat_id::ground_truth()).collect()
}
