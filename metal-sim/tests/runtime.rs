//! The simulator's runtime and shim, tested in C++: programs of kernels as the translation would emit them, in `cpp/`.
//!
//! Each program runs once per order of lanes. It names the check that failed and exits with 1.

#![cfg(target_os = "linux")]

mod common;

use std::sync::LazyLock;

use common::{Machine, PROGRAMS, Program};

static THIS: LazyLock<Machine> = LazyLock::new(Machine::this);

fn program(name: &str) -> Program {
    let found = PROGRAMS.iter().find(|program| program.name == name);
    *found.unwrap_or_else(|| panic!("no program {name}"))
}

#[test]
fn scheduling() {
    THIS.check(program("scheduling"));
}

#[test]
fn dispatches() {
    THIS.check(program("dispatches"));
}

#[test]
fn memory() {
    THIS.check(program("memory"));
    let output = THIS.run(program("memory"), "METAL_SIM_BEHIND", "guard");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn constants() {
    THIS.check(program("constants"));
}

#[test]
fn arithmetic() {
    THIS.check(program("arithmetic"));
}

#[test]
fn tensor() {
    THIS.check(program("tensor"));
}

#[test]
fn a_setting_that_is_not_understood_stops_every_dispatch() {
    assert_eq!(THIS.missing_tool(), None);
    for (name, value, expected) in [
        (
            "METAL_SIM_ORDER",
            "backwards",
            "METAL_SIM_ORDER=backwards: expected ascending, reversed or random",
        ),
        (
            "METAL_SIM_THREADS",
            "0",
            "METAL_SIM_THREADS=0: expected 1 to 16",
        ),
        ("METAL_SIM_SEED", "x", "METAL_SIM_SEED=x: expected a number"),
        (
            "METAL_SIM_BEHIND",
            "nothing",
            "METAL_SIM_BEHIND=nothing: expected readable or guard",
        ),
    ] {
        let output = THIS.run(program("scheduling"), name, value);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}
