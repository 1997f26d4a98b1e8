//! Functions of each element of one tensor, and their chains.

mod clamp;
mod function;
mod fused;
mod leaky_relu;
mod plain;
mod silu_back;
mod xielu;

pub use clamp::Clamp;
pub use function::Unary;
pub use fused::{ReluSqr, Snake, Softcap};
pub use leaky_relu::LeakyRelu;
pub use plain::Plain;
pub use silu_back::SiluBack;
pub use xielu::Xielu;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(function::cases())
        .chain(fused::cases())
        .chain(boxed(plain::cases()))
        .chain(boxed(clamp::cases()))
        .chain(boxed(leaky_relu::cases()))
        .chain(boxed(xielu::cases()))
        .chain(boxed(silu_back::cases()))
        .chain(function::ours())
        .chain(plain::ours())
        .chain(clamp::ours())
        .chain(leaky_relu::ours())
        .chain(xielu::ours())
        .chain(silu_back::ours())
        .collect()
}
