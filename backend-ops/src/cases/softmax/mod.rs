//! Softmax and its gradient.

pub(crate) mod soft_max;
mod soft_max_back;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(soft_max::cases())
        .chain(boxed(soft_max::ours()))
        .chain(boxed(soft_max_back::cases()))
        .chain(boxed(soft_max_back::ours()))
        .collect()
}
