//! `cargo xtask patches`: the patch series as commits of a git working tree, and back.

mod edit;
mod hunks;
mod proofs;
mod refresh;
mod stamp;
mod verify;

pub use self::{
    edit::edit,
    refresh::{Change, refresh},
    verify::{Report, verify},
};

/// Subject of the commit that holds the whole files of `patches/src`.
const OVERLAY: &str = "overlay";

/// Marks the pristine tree, the commit that everything is compared with.
const PRISTINE: &str = "refs/xtask/pristine";
