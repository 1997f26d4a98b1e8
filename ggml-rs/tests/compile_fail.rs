//! One file per promise that the compiler keeps. A process of its own: it sets a variable for the compilers that it starts.

#[test]
fn what_must_not_compile_does_not() {
    // Nothing is linked here, so ggml need not be compiled: its build script skips that for docs.rs.
    // SAFETY: this is the only test of this process, and no other thread has been started.
    unsafe { std::env::set_var("DOCS_RS", "1") };
    trybuild::TestCases::new().compile_fail("tests/fail/*.rs");
}
