//! The dispatch trace of the Metal backend: which kernels ran, with how much threadgroup memory.
//!
//! Added by our patches, and the same on a real and on the simulated device. Recording is one process-wide list.

use core::ffi::c_char;

unsafe extern "C-unwind" {
    /// Clears the record and starts recording.
    #[link_name = "ggmlrs_ggml_metal_trace_start"]
    pub fn ggml_metal_trace_start();
    /// Stops recording; the record stays.
    #[link_name = "ggmlrs_ggml_metal_trace_stop"]
    pub fn ggml_metal_trace_stop();
    /// Number of dispatches recorded.
    #[link_name = "ggmlrs_ggml_metal_trace_count"]
    pub fn ggml_metal_trace_count() -> usize;
    /// Reads dispatch `i`: the pipeline's name, NUL-terminated and cut to `name_len` bytes, and the threadgroup memory set
    /// for it. False when there is no such dispatch.
    #[link_name = "ggmlrs_ggml_metal_trace_get"]
    pub fn ggml_metal_trace_get(
        i: usize,
        name: *mut c_char,
        name_len: usize,
        threadgroup_bytes: *mut usize,
    ) -> bool;
}
