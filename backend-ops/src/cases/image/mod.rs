//! Resampling of images, windows of attention over them, and positions.

mod rel_pos;
mod timestep_embedding;
mod upscale;
mod windows;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(upscale::cases())
        .chain(boxed(timestep_embedding::cases()))
        .chain(boxed(windows::cases()))
        .chain(boxed(rel_pos::get_cases()))
        .chain(boxed(rel_pos::add_cases()))
        .collect()
}
