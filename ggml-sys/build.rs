//! Obtains ggml through cargo, patches a copy in `OUT_DIR` and compiles it with a symbol prefix.
//!
//! The work is done by the modules in `build/`; `tests/build_script.rs` runs their unit tests.

#[path = "build/mod.rs"]
mod build;

fn main() -> std::process::ExitCode {
    build::main()
}
