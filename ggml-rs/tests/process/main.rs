//! What may hang, abort or take all memory, and loggers, of which a process has one: each test runs in a child process
//! (`common::child`).

#[path = "../common/mod.rs"]
mod common;

mod log;
mod nested;
mod out_of_memory;
