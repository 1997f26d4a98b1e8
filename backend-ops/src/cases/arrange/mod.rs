//! Copies, and tensors rearranged: repeated, joined, padded, rolled.

mod copy;

pub use copy::{Cont, Cpy};
pub(crate) use copy::{TRANSPOSED, UNPERMUTED};

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(copy::cpy_cases())
        .chain(boxed(copy::cont_cases()))
        .collect()
}
