//! The committed bindings are those that the patched headers give.

#[test]
#[cfg_attr(
    not(feature = "bindgen"),
    ignore = "needs libclang: cargo test -p ggml-sys --features bindgen"
)]
fn committed_bindings_match_the_headers() {
    let committed = include_str!("../src/bindings.rs");
    let generated = std::fs::read_to_string(concat!(env!("GGML_SYS_OUT_DIR"), "/bindings.rs"))
        .expect("the feature bindgen makes the build write the bindings");
    let difference = committed
        .lines()
        .zip(generated.lines())
        .find(|(committed, generated)| committed != generated);
    assert_eq!(difference, None, "run `cargo xtask bindings`");
    assert_eq!(
        committed.lines().count(),
        generated.lines().count(),
        "run `cargo xtask bindings`"
    );
}
