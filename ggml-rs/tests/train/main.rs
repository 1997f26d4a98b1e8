//! Training: steps against formulas in f64, runs that stop and go on, checkpoints, and what is refused.

#[path = "../common/mod.rs"]
mod common;

mod early;
mod evaluation;
mod hostile;
mod interrupted;
mod kill;
mod mlp_digits;
mod places;
mod refused;
mod resume;
mod steps;
mod subject;
mod training;

// Parts of the example, which find each other at the root.
#[path = "../../examples/mlp_digits/digits.rs"]
mod digits;
#[path = "../../examples/mlp_digits/network.rs"]
mod network;
#[path = "../../examples/mlp_digits/track.rs"]
mod track;
