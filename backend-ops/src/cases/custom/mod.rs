//! Operations that call back into Rust.

mod closures;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(closures::cases()).collect()
}
