//! What was built, known to both sides of the language border.

use core::ffi::{CStr, c_char};

/// What this crate was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// ggml's version, for instance `0.26.0`.
    pub ggml_version: &'static str,
    /// SHA-256, in hexadecimal, over the pin, the patches, the patched source and (where it is compiled in) metal-sim.
    pub hash: &'static str,
}

/// The build as the Rust side knows it. Equal to [`compiled_hash`] unless a stale archive was linked.
pub const BUILD: BuildInfo = BuildInfo {
    ggml_version: env!("GGML_SYS_VERSION"),
    hash: env!("GGML_SYS_HASH"),
};

unsafe extern "C" {
    fn ggmlrs_build_hash() -> *const c_char;
}

/// The hash as it was compiled into the archive. See [`BuildInfo::hash`].
pub fn compiled_hash() -> &'static str {
    // SAFETY: build/info.rs generates the function; it returns a string literal, which is NUL-terminated and static.
    let hash = unsafe { CStr::from_ptr(ggmlrs_build_hash()) };
    // Hexadecimal digits are UTF-8. Anything else is not the hash, as the comparison with BUILD will show.
    hash.to_str().unwrap_or_default()
}
