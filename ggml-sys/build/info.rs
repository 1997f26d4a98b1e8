//! What the build says about itself, on both sides of the language border, so that a test can compare them.

use super::{
    error::Error,
    hash::BuildHash,
    layout::Layout,
    patch::Stack,
    prefix::PREFIX,
    tree::{Tree, read_text},
};

/// The generated C file that carries the hash.
pub const FILE: &str = "ggmlrs-build-info.c";

/// Hash over the pin, the patches, the patched tree (which `GGML_SRC_DIR` may change) and the simulator's sources, given
/// as path and text.
pub fn hash(
    layout: &Layout,
    patches: &Stack,
    tree: &Tree,
    simulator: &[(String, String)],
) -> Result<String, Error> {
    let mut hash = BuildHash::default();
    hash.add(
        "vendor/Cargo.toml",
        read_text(&layout.pin_manifest)?.as_bytes(),
    );
    hash.add("vendor/Cargo.lock", read_text(&layout.pin_lock)?.as_bytes());
    for (name, text) in patches.inputs() {
        hash.add(&format!("patches/{name}"), text.as_bytes());
    }
    for (path, text) in tree.files() {
        hash.add(&format!("ggml/{path}"), text.as_bytes());
    }
    for (path, text) in simulator {
        hash.add(below_metal_sim(path), text.as_bytes());
    }
    Ok(hash.finish())
}

/// Hash over the patches alone: what this project changes, whichever ggml it is applied to.
pub fn patchset(patches: &Stack) -> String {
    let mut hash = BuildHash::default();
    for (name, text) in patches.inputs() {
        hash.add(&name, text.as_bytes());
    }
    hash.finish()
}

/// A path that does not depend on where the checkout lies.
fn below_metal_sim(path: &str) -> &str {
    path.rfind("metal-sim").map_or(path, |start| &path[start..])
}

/// The C side.
pub fn c_source(hash: &str) -> String {
    format!(
        "const char * {PREFIX}build_hash(void);\nconst char * {PREFIX}build_hash(void) {{ return \"{hash}\"; }}\n"
    )
}

/// The Rust side, as `env!` reads it.
pub fn for_rust(version: &str, hash: &str) {
    println!("cargo::rustc-env=GGML_SYS_VERSION={version}");
    println!("cargo::rustc-env=GGML_SYS_HASH={hash}");
}

/// On docs.rs there is no source to describe.
pub fn for_documentation() {
    for_rust("documentation only", "documentation only");
}
