//! Tells the mutants where ggml-sys put the patched tree, the objects and the archive, and which devices it built.

fn main() {
    for name in ["ROOT", "PREFIX_HEADER", "DEFINES", "ARCHIVE", "BACKENDS"] {
        let value = std::env::var(format!("DEP_GGML_{name}")).unwrap_or_default();
        println!("cargo::rerun-if-env-changed=DEP_GGML_{name}");
        println!("cargo::rustc-env=GGML_{name}={value}");
    }
}
