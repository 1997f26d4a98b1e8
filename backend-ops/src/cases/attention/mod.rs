//! Flash attention.

pub(crate) mod flash;
mod indexer;
mod mask;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(flash::cases())
        .chain(boxed(flash::ours()))
        .chain(boxed(indexer::ours()))
        .collect()
}
