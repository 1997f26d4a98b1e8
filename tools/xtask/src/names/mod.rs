//! The index from ggml's names to ggml-rs's: `docs/guide/names.md`, which is committed and made of the sources.

mod api;
// The decisions and their reader belong to ggml-rs's test of coverage. There is no second table.
#[path = "../../../../ggml-rs/tests/coverage/bindings.rs"]
mod bindings;
mod index;
#[path = "../../../../ggml-rs/tests/coverage/table.rs"]
mod table;

use std::fs;

use anyhow::{Context, Result};

use crate::{page::Page, pin::checkout};

/// The page that the sources make.
///
/// # Errors
/// When a source cannot be read, and for an alias that names nothing, or is on something that is not public.
pub fn page() -> Result<Page> {
    let root = checkout();
    let bindings = root.join("ggml-sys/src/bindings.rs");
    let bindings = fs::read_to_string(&bindings)
        .with_context(|| format!("cannot read {}", bindings.display()))?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let text = index::page(&index::Facts {
        functions: bindings::functions(&bindings),
        words: bindings.split(|c| !is_word(c)).collect(),
        aliases: api::aliases(&root.join("ggml-rs/src"))?,
        omitted: table::OMITTED,
        through: table::THROUGH,
        internal: table::INTERNAL,
    })?;
    Ok(Page::new("docs/guide/names.md", "cargo xtask names", text))
}
