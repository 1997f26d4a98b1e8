//! Tells the mutants where ggml-sys put the patched tree, the objects and the archive, and which devices it built.

fn main() {
    for (key, name) in [("DEP_GGML_ROOT", "GGML_ROOT"), ("DEP_GGML_BACKENDS", "GGML_BACKENDS")] {
        println!("cargo::rerun-if-env-changed={key}");
        println!("cargo::rustc-env={name}={}", std::env::var(key).unwrap_or_default());
    }
}
