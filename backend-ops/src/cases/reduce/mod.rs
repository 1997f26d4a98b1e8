//! Sums, means, and running sums.

mod cumsum;
mod mean;
mod sum;
mod sum_rows;

pub use cumsum::Cumsum;
pub use mean::Mean;
pub use sum::Sum;
pub use sum_rows::SumRows;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(sum::cases())
        .chain(boxed(mean::cases()))
        .chain(boxed(sum_rows::cases()))
        .chain(boxed(cumsum::cases()))
        .chain(sum::ours())
        .chain(mean::ours())
        .chain(sum_rows::ours())
        .chain(cumsum::ours())
        .collect()
}
