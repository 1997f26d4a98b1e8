//! Kernels of our own, translated, compiled and run: what the translation must preserve, seen in the results.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use metal_sim::Build;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/execution");
const OUT: &str = env!("CARGO_TARGET_TMPDIR");

/// A tree as ggml's, with our one kernel file in it.
fn tree() -> PathBuf {
    let tree = Path::new(OUT).join("tree");
    let metal = tree.join("src/ggml-metal");
    std::fs::create_dir_all(metal.join("kernels")).unwrap();
    let libraries = "#define GGML_METAL_LIBS X(TEST, test)\n";
    std::fs::write(metal.join("ggml-metal-device.m"), libraries).unwrap();
    for (name, place) in [
        ("test.metal", "kernels/test.metal"),
        ("ggml-metal-impl.h", "ggml-metal-impl.h"),
    ] {
        std::fs::copy(Path::new(HERE).join(name), metal.join(place)).unwrap();
    }
    tree
}

/// The program that dispatches them.
fn driver() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let objects = Build::new(tree(), Path::new(OUT).join("out"))
            .compile_kernels()
            .unwrap_or_else(|error| panic!("{error}"));
        let driver = Path::new(OUT).join("driver");
        let cpp = concat!(env!("CARGO_MANIFEST_DIR"), "/cpp/runtime");
        let status = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
            .args(["-std=c++17", "-I", cpp, "-I", HERE])
            .arg(Path::new(HERE).join("driver.cpp"))
            .args(objects.iter().map(|object| &object.path))
            .args(["-lpthread", "-o"])
            .arg(&driver)
            .status()
            .unwrap();
        assert!(status.success());
        driver
    })
}

fn run(order: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(driver());
    command.env("METAL_SIM_ORDER", order).args(arguments);
    command.output().unwrap()
}

/// The 32 values a kernel wrote.
fn values(order: &str, arguments: &[&str]) -> Vec<f32> {
    let output = run(order, arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{arguments:?} {order}: {} {text}",
        output.status
    );
    text.split_whitespace()
        .map(|value| value.parse().unwrap())
        .collect()
}

const ORDERS: [&str; 3] = ["ascending", "reversed", "random"];

#[test]
fn lanes_meet_before_and_after_a_leader_only_block() {
    for order in ORDERS {
        assert_eq!(values(order, &["kernel_leader"]), [100.0; 32], "{order}");
    }
}

#[test]
fn an_integer_division_by_zero_does_not_stop_the_program() {
    let values = values("ascending", &["kernel_divide_by_zero"]);
    assert!(
        values.len() == 32 && values.iter().all(|value| value.is_finite()),
        "{values:?}"
    );
}

#[test]
fn every_instantiation_of_a_macro_is_found_and_sees_its_function_constants() {
    for (kernel, factor, negate, expected) in [
        ("kernel_scale_f32_1", "3", "0", 3.0 + 20.0),
        ("kernel_scale_f32_2", "3", "1", -6.0 + 40.0),
        ("kernel_scale_i32_1", "5", "1", -5.0 + 20.0),
        ("kernel_scale_i32_2", "5", "0", 10.0 + 40.0),
    ] {
        assert_eq!(
            values("ascending", &[kernel, factor, negate]),
            [expected; 32],
            "{kernel}"
        );
    }
}

#[test]
fn an_array_in_a_kernel_is_shared_by_its_lanes_and_starts_as_nan() {
    for order in ORDERS {
        let values = values(order, &["kernel_array"]);
        assert!(values[0].is_nan(), "{order}: {values:?}");
        assert_eq!(values[1..], [7.0; 31], "{order}");
    }
}

#[test]
fn a_write_behind_threadgroup_memory_becomes_a_fault_that_names_the_kernel() {
    let output = run("ascending", &["kernel_overrun"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("kernel_overrun") && text.contains("128"),
        "{text}"
    );
}
