//! Training: steps against formulas in f64, runs that stop and go on, checkpoints, and what is refused.

#[path = "../common/mod.rs"]
mod common;

mod early;
mod evaluation;
mod hostile;
mod interrupted;
mod kill;
mod places;
mod refused;
mod resume;
mod steps;
mod subject;
