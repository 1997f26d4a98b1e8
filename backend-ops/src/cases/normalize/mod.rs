//! Normalizations, their gradients, and what backends fuse them with.

mod fused;
mod group_norm;
mod norm;
mod rms_norm_back;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(norm::cases())
        .chain(boxed(norm::ours()))
        .chain(boxed(rms_norm_back::cases()))
        .chain(boxed(rms_norm_back::ours()))
        .chain(boxed(group_norm::cases()))
        .chain(boxed(group_norm::ours()))
        .chain(boxed(fused::cases()))
        .chain(boxed(fused::ours()))
        .collect()
}
