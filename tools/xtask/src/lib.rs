//! Maintainers' commands of ggml-rs. See `cargo xtask --help`.
#![deny(missing_docs)]

pub mod asserts;
pub mod bindings;
pub mod cli;
pub mod findings;
pub mod git;
pub mod mac_report;
pub mod names;
pub mod page;
pub mod patches;
pub mod pin;
pub mod upgrade;
