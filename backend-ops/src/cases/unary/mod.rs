//! Unary operations.

use crate::case::Case;

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    Vec::new()
}
