//! The Rust side and the compiled side were built from the same sources.

use std::ffi::CStr;

#[test]
fn both_sides_know_the_same_hash() {
    assert_eq!(ggml_sys::BUILD.hash.len(), 64);
    assert_eq!(ggml_sys::compiled_hash(), ggml_sys::BUILD.hash);
}

#[test]
fn the_compiled_version_is_the_declared_one() {
    // SAFETY: takes nothing and returns a string literal.
    let version = unsafe { CStr::from_ptr(ggml_sys::ggml_version()) };
    assert_eq!(version.to_str().unwrap(), ggml_sys::BUILD.ggml_version);
}
