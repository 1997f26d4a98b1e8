//! Runs cases: one on one device, all of a session, here or in worker processes.

mod bisect;
pub mod pool;
mod queue;
pub mod runner;
pub mod session;
pub mod worker;
