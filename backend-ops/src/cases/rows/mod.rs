//! Rows by id: get, set, and their gradients.

mod get_rows;
mod get_rows_back;
mod set_rows;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(get_rows::cases())
        .chain(boxed(get_rows::ours()))
        .chain(boxed(get_rows_back::cases()))
        .chain(boxed(get_rows_back::ours()))
        .chain(boxed(set_rows::cases()))
        .chain(boxed(set_rows::ours()))
        .collect()
}
