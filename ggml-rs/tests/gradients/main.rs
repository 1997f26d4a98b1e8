//! Gradients: every one against differences, what a backward refuses and recomputes, and the steps of optimizers.

#[path = "../common/mod.rs"]
mod common;

mod backward;
mod differences;
