//! Calls C that calls ggml, and ggml itself: one copy of it serves both.

unsafe extern "C" {
    fn probe_add(a: f32, b: f32) -> f32;
    fn probe_version_is_right() -> i32;
}

fn main() {
    // SAFETY: both take values only; ggml_type_size is asked about a type that exists.
    let (sum, right, size) = unsafe {
        (probe_add(2.0, 40.0), probe_version_is_right(), ggml_sys::ggml_type_size(ggml_sys::GGML_TYPE_F32))
    };
    assert_eq!((sum, right, size), (42.0, 1, 4));
    println!("C and Rust agree");
}
