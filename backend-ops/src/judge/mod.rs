//! What a result is held to, and what is said of it.

pub(crate) mod compare;
pub mod exact;
pub mod outcome;
pub mod routing;
pub mod study;
pub mod verify;
mod wire;
