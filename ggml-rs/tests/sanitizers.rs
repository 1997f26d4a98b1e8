//! Faults for `.ci/sanitize` and `.ci/nightly` to find, so that their silence about other tests means something. Ignored
//! elsewhere: without the sanitizers or valgrind they would do what they must not. A binary of their own: each ends its process, and
//! `.ci/sanitize` builds them before anything else.

use std::mem::MaybeUninit;

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

/// ggml decides by values that nothing has written.
#[test]
#[ignore = "only under valgrind in .ci/nightly, which expects it to fail"]
fn a_branch_on_what_nothing_wrote() {
    let values = [MaybeUninit::<f32>::uninit(); 64];
    let values = std::hint::black_box(Box::new(values));
    // SAFETY: none: the fault is the point.
    let valid = unsafe {
        sys::ggml_validate_row_data(
            sys::GGML_TYPE_F32,
            values.as_ptr().cast(),
            size_of_val(&*values),
        )
    };
    std::hint::black_box(valid);
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
