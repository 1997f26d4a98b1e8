//! The command line: its flags, what they must not be together, and what a run of the binary is made of.

mod args;
mod check;
mod environment;
mod modes;
mod report;
mod settings;
mod values;

pub use args::Cli;
pub use check::check;
pub use environment::Environment;
pub use modes::{barriers, gradients, perf, support};
pub use report::{progress_bar, report};
pub use settings::{settings, workers};
pub use values::{Mode, Output, RouteArg, Seed, StagingArg, Switch};
