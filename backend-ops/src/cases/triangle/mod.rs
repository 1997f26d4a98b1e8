//! Triangles and diagonals of matrices, and systems that they make easy.

mod diag;
mod diag_mask;
mod solve_tri;
mod tri;

pub use diag::Diag;
pub use diag_mask::DiagMask;
pub use solve_tri::SolveTri;
pub use tri::Tri;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(diag_mask::cases())
        .chain(boxed(tri::cases()))
        .chain(boxed(diag::cases()))
        .chain(boxed(solve_tri::cases()))
        .chain(diag_mask::ours())
        .chain(tri::ours())
        .chain(diag::ours())
        .chain(solve_tri::ours())
        .collect()
}
