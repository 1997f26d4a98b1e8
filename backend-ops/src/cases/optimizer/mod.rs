//! Optimizer steps.

mod opt_step;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(opt_step::cases()).collect()
}
