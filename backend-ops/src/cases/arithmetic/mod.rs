//! Arithmetic of two tensors, and of a tensor and a number.

mod add;

pub use add::Add;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(add::cases()).collect()
}
