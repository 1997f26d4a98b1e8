//! Arithmetic of two tensors, and of a tensor and a number.

mod add1;
mod add_cast;
mod add_id;
mod binary;
mod constant;
mod scale;

pub use add_cast::AddCast;
pub use add_id::AddId;
pub use add1::Add1;
pub use binary::Binary;
pub use constant::{Arange, Fill};
pub use scale::Scale;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(binary::cases())
        .chain(boxed(scale::cases()))
        .chain(boxed(add_id::cases()))
        .chain(constant::cases())
        .chain(binary::ours())
        .chain(add_cast::ours())
        .chain(add1::ours())
        .chain(scale::ours())
        .chain(add_id::ours())
        .chain(constant::ours())
        .collect()
}
