//! Images, windows and positions.

mod interpolate;
mod positions;
mod windows;

pub use interpolate::{Interpolation, Scale};
