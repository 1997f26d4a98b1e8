//! Faults for `.ci/sanitize` to find, so that its silence about other tests means something. Ignored elsewhere: without the
//! sanitizers they would do what they must not.

use ggml_sys as sys;

/// ggml writes three halves into a block of Rust's that holds two.
#[test]
#[ignore = "only under .ci/sanitize, which expects it to fail"]
fn a_write_past_a_block() {
    let from = [1.0f32; 3];
    let mut to: Box<[u16]> = vec![0; std::hint::black_box(2)].into();
    // SAFETY: none: the fault is the point.
    unsafe { sys::ggml_fp32_to_fp16_row(from.as_ptr(), to.as_mut_ptr(), 3) };
    std::hint::black_box(to);
}

/// ggml multiplies dimensions beyond what an `int64_t` holds.
#[test]
#[ignore = "only under .ci/sanitize, which expects it to fail"]
fn an_overflowing_product() {
    // SAFETY: a tensor of zeroes is a value of the C struct, and counting its elements only reads its dimensions.
    let elements = unsafe {
        let mut tensor: sys::ggml_tensor = std::mem::zeroed();
        tensor.ne = [i64::MAX, 4, 1, 1];
        sys::ggml_nelements(&raw const tensor)
    };
    std::hint::black_box(elements);
}
