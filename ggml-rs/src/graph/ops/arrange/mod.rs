//! Joining, padding and masking.

mod join;
mod mask;
mod pad;

pub use mask::TriPart;
