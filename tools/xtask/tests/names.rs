//! The index of ggml's names is what ggml-rs's sources say.

use xtask::names;

#[test]
fn the_index_is_what_the_sources_say() {
    let committed = std::fs::read_to_string(names::file()).unwrap();
    if let Some(difference) = names::difference(&committed, &names::current().unwrap()) {
        panic!("{difference}");
    }
}
