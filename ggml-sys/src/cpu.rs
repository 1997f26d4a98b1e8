//! What the archive needs of the CPU, and which copy of the CPU backend it uses.
//!
//! On x86-64 the CPU backend is compiled once per level (x86-64-v2, v3, v4), and the best one that the CPU and the
//! operating system support is picked on first use. With the feature `native`, with target features given to rustc, and
//! on other targets there is one copy. **Check [`needs`] and then [`level_error`] before any call into ggml.**

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static ggmlrs_cpu_needs: *const c_char;
    fn ggmlrs_cpu_level_error() -> *const c_char;
    fn ggmlrs_cpu_level_name() -> *const c_char;
}

/// Features that all of ggml's code takes for granted, separated by blanks, by the names that Rust's
/// `is_x86_feature_detected` and its like use. May be read on any CPU.
pub fn needs() -> &'static str {
    // SAFETY: needs.c defines the pointer, which nobody changes, to a string literal.
    unsafe { text(ggmlrs_cpu_needs) }.unwrap_or_default()
}

/// Why no copy of the CPU backend can be used, which includes a wrong value of `GGML_RS_CPU_LEVEL`. May be called on any
/// CPU. Calls into the CPU backend end the process where there is an error.
pub fn level_error() -> Option<&'static str> {
    // SAFETY: takes nothing; returns NULL or a string that is written once, before the first return.
    unsafe { text(ggmlrs_cpu_level_error()) }
}

/// What the copy in use is compiled for, for people to read: `x86-64-v4`, `native`. `None` where there is an error.
pub fn level() -> Option<&'static str> {
    match level_error() {
        // SAFETY: takes nothing and returns a string literal. It would end the process on an error: there is none.
        None => unsafe { text(ggmlrs_cpu_level_name()) },
        Some(_) => None,
    }
}

/// # Safety
/// `chars` must be NULL, or NUL-terminated and static.
pub(crate) unsafe fn text(chars: *const c_char) -> Option<&'static str> {
    if chars.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for the string.
    unsafe { CStr::from_ptr(chars) }.to_str().ok()
}
