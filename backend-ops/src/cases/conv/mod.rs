//! Convolutions, and the windows that they are made of.

use crate::case::Case;

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    Vec::new()
}
