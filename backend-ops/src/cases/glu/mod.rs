//! Gated linear units.

mod gate;

pub use gate::{Glu, GluSplit, SwigluOai};

use crate::case::Case;

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    let mut cases = gate::cases();
    cases.extend(gate::ours());
    cases
}
