//! Rotary position embeddings.

mod positions;
mod rope_set_rows;
pub(crate) mod rotate;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(rotate::cases())
        .chain(boxed(rotate::ours()))
        .chain(boxed(rope_set_rows::rope_set_rows()))
        .chain(boxed(rope_set_rows::rms_norm_mul_rope()))
        .collect()
}
