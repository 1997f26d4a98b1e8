//! The index of ggml's names is what ggml-rs's sources say.

use xtask::names;

#[test]
fn the_index_is_what_the_sources_say() {
    if let Some(difference) = names::page().unwrap().difference().unwrap() {
        panic!("{difference}");
    }
}
