//! Losses and their gradients.

mod cross_entropy_loss;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(cross_entropy_loss::cases()).collect()
}
