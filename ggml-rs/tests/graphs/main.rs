//! Graphs, plans and parameters: built, run, refused, shared between threads and divided among devices.

#[path = "../common/mod.rs"]
mod common;

mod cancel;
mod params;
mod places;
mod plans;
mod scheduler;
mod send_sync;
mod sharing;
mod threads;
