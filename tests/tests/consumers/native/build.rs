//! Compiles C against the ggml that ggml-sys built.

use std::{env, path::Path};

fn metadata(name: &str) -> String {
    env::var(format!("DEP_GGML_{name}")).unwrap_or_else(|_| panic!("no DEP_GGML_{name}"))
}

fn main() {
    println!("cargo::rerun-if-changed=probe.c");
    assert!(Path::new(&metadata("ROOT")).join("ggml/src/ggml.c").is_file());
    cc::Build::new()
        .file("probe.c")
        .include(metadata("INCLUDE"))
        .flag("-include")
        .flag(metadata("PREFIX_HEADER"))
        .define("EXPECTED_VERSION", format!("\"{}\"", metadata("VERSION")).as_str())
        .compile("probe");
}
