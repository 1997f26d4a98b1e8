//! The simulator's runtime and shim, tested in C++: programs of kernels as the translation would emit them, in `cpp/`.
//!
//! Each program runs once per order of lanes. It names the check that failed and exits with 1.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use cc_units::UnitSet;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const OUT: &str = env!("CARGO_TARGET_TMPDIR");

/// What the build passes for kernels on x86-64: see `metal_sim::Build`.
const KERNEL_FLAGS: &[&str] = &[
    "-mavx2",
    "-mf16c",
    "-mfma",
    "-ffp-contract=off",
    "-fexcess-precision=16",
    "-fno-strict-aliasing",
];

fn compile(set: &str, standard: &str, files: Vec<PathBuf>) -> Vec<PathBuf> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build
        .target(&host)
        .host(&host)
        .cpp(true)
        .std(standard)
        .opt_level(1)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .cargo_metadata(false)
        .flags(KERNEL_FLAGS);
    for dir in ["cpp/shim", "cpp/runtime", "tests/cpp"] {
        build.include(Path::new(CRATE).join(dir));
    }
    UnitSet::new(build, Path::new(OUT).join(set))
        .root("metal-sim", CRATE)
        .files(files)
        .compile()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The runtime's objects, compiled once for all programs.
fn runtime() -> &'static [PathBuf] {
    static OBJECTS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let dir = Path::new(CRATE).join("cpp/runtime");
        let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
            .collect();
        files.sort();
        compile("runtime", "c++17", files)
    })
}

/// The program `name`, built once: tests that share it must not relink it under one another.
fn program(name: &str, standard: &str) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap();
    let built = built.get_or_insert_default();
    if !built.contains_key(name) {
        built.insert(name.to_owned(), build_program(name, standard));
    }
    built[name].clone()
}

fn build_program(name: &str, standard: &str) -> PathBuf {
    let source = Path::new(CRATE).join("tests/cpp").join(name);
    let objects = compile(name, standard, vec![source.with_extension("cpp")]);
    let program = Path::new(OUT).join(name).join("program");
    let status = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(objects.iter().chain(runtime()))
        .args(["-lpthread", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(status.success(), "linking {name}: {status}");
    program
}

/// Runs a program in every order of lanes; each must report `tests` passed tests and no other.
fn check(name: &str, standard: &str, tests: usize) {
    let program = program(name, standard);
    for order in ["ascending", "reversed", "random"] {
        let output = Command::new(&program)
            .env("METAL_SIM_ORDER", order)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{name}, {order}: {}\n{text}",
            output.status
        );
        let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
        assert_eq!(passed, tests, "{name}, {order}:\n{text}");
    }
}

#[test]
fn scheduling() {
    check("scheduling", "c++17", 14);
}

#[test]
fn memory() {
    check("memory", "c++17", 9);
}

#[test]
fn constants() {
    check("constants", "c++17", 5);
}

#[test]
fn arithmetic() {
    check("arithmetic", "c++17", 9);
}

#[test]
fn tensor() {
    check("tensor", "c++20", 1);
}

#[test]
fn a_setting_that_is_not_understood_stops_every_dispatch() {
    let program = program("scheduling", "c++17");
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
    ] {
        let output = Command::new(&program).env(name, value).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}
