//! Whether numbers are right: comparison, and references in double precision.

mod compare;
pub mod reference;

pub use compare::{Comparison, Difference, Mismatch, compare, nmse};
