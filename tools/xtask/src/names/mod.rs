//! The index from ggml's names to ggml-rs's: `docs/guide/names.md`, which is committed and made of the sources.

mod api;
// The decisions and their reader belong to ggml-rs's test of coverage. There is no second table.
#[path = "../../../../ggml-rs/tests/coverage/bindings.rs"]
mod bindings;
mod index;
#[path = "../../../../ggml-rs/tests/coverage/table.rs"]
mod table;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::pin::checkout;

/// The committed page.
pub fn file() -> PathBuf {
    checkout().join("docs/guide/names.md")
}

/// The page that the sources make.
///
/// # Errors
/// When a source cannot be read, and for an alias that names nothing, or is on something that is not public.
pub fn current() -> Result<String> {
    let root = checkout();
    let bindings = root.join("ggml-sys/src/bindings.rs");
    let bindings = fs::read_to_string(&bindings)
        .with_context(|| format!("cannot read {}", bindings.display()))?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    index::page(&index::Facts {
        functions: bindings::functions(&bindings),
        words: bindings.split(|c| !is_word(c)).collect(),
        aliases: api::aliases(&root.join("ggml-rs/src"))?,
        omitted: table::OMITTED,
        through: table::THROUGH,
        internal: table::INTERNAL,
    })
}

/// Writes the page.
///
/// # Errors
/// As [`current`], and when the file cannot be written.
pub fn write() -> Result<()> {
    let (page, file) = (current()?, file());
    fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}

/// Whether the committed page is what the sources make; prints what differs.
///
/// # Errors
/// As [`current`], and when the file cannot be read.
pub fn check() -> Result<bool> {
    let (page, file) = (current()?, file());
    let committed =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    match difference(&committed, &page) {
        None => println!("{} holds", file.display()),
        Some(difference) => {
            println!("{difference}");
            return Ok(false);
        }
    }
    Ok(true)
}

/// The lines in which the committed page and that of the sources differ.
#[must_use]
pub fn difference(committed: &str, current: &str) -> Option<String> {
    if committed == current {
        return None;
    }
    let only = |lines: &str, others: &str, sign| -> String {
        lines
            .lines()
            .filter(|line| !others.lines().any(|other| other == *line))
            .map(|line| format!("\n{sign} {line}"))
            .collect()
    };
    Some(format!(
        "docs/guide/names.md is not what the sources say. Run `cargo xtask names`.{}{}",
        only(committed, current, '-'),
        only(current, committed, '+')
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_both_sides() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let text = difference("a\nb\n", "a\nc\n").unwrap();
        assert!(
            text.contains("\n- b") && text.contains("\n+ c") && !text.contains("- a"),
            "{text}"
        );
    }
}
