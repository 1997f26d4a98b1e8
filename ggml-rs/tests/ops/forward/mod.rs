//! Ops against formulas in f64, by families, on the CPU and on the simulated Metal device.

mod arrange;
mod attention;
mod conv;
mod custom;
mod elementwise;
mod image;
mod normalize;
mod recurrent;
mod rows;
