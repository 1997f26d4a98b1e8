//! ggml's assertions are those that ggml-rs was checked against.

use xtask::asserts;

#[test]
fn the_snapshot_is_what_the_patched_sources_assert() {
    let committed = std::fs::read_to_string(asserts::file()).unwrap();
    let current = asserts::current().unwrap();
    println!("{}", current.summary());
    if let Some(difference) = current.difference(&committed) {
        panic!("{difference}");
    }
}
