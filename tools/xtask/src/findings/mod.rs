//! The faults of ggml that the series mends, as tables in `docs/findings.md` and `CHANGELOG.md`.
//!
//! The tables stand between two marks; everything around them is written by hand.

mod tables;

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use patch_series::{Entry, Series};

use crate::{page::Page, pin::checkout};

pub use tables::wrong;

/// The series whose findings are listed, by folder. One whose diffs the build does not apply belongs here too.
const SERIES: [&str; 1] = ["patches"];

const BEGIN: &str = "<!-- Made by `cargo xtask findings` of patches/series.toml. Do not edit: tools/xtask/tests/findings.rs compares. -->\n";
const END: &str = "<!-- End of what `cargo xtask findings` makes. -->\n";

/// The files with the tables that the series make.
///
/// # Errors
/// When a series or a file cannot be read, a finding is not whole, or a file has no place for the tables.
pub fn pages() -> Result<Vec<Page>> {
    let entries = entries()?;
    let wrong = wrong(&entries);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    [
        ("docs/findings.md", tables::by_section(&entries)),
        ("CHANGELOG.md", tables::by_patch(&entries)),
    ]
    .into_iter()
    .map(|(path, tables)| {
        let file = checkout().join(path);
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let text = between_marks(&text, &tables).with_context(|| path.to_owned())?;
        Ok(Page::new(path, "cargo xtask findings", text))
    })
    .collect()
}

fn entries() -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for folder in SERIES {
        let series = Series::read(&checkout().join(folder))?;
        entries.extend(series.patches().iter().map(|(entry, _)| entry.clone()));
    }
    Ok(entries)
}

/// `text` with `tables` in place of what stands between its marks.
fn between_marks(text: &str, tables: &str) -> Result<String> {
    let once = |mark: &str| text.matches(mark).count() == 1;
    let parts = text.split_once(BEGIN).zip(text.split_once(END));
    let (Some(((before, _), (_, after))), true) = (parts, once(BEGIN) && once(END)) else {
        bail!("the two marks of the tables must stand there once each:\n{BEGIN}{END}");
    };
    ensure!(
        before.len() + BEGIN.len() + END.len() + after.len() <= text.len(),
        "the second mark of the tables stands before the first"
    );
    Ok(format!("{before}{BEGIN}\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_replaced_and_nothing_else() {
        let text = format!("a\n{BEGIN}old\n{END}b\n");
        let new = between_marks(&text, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n\n{END}b\n"));
        assert_eq!(between_marks(&new, "new\n").unwrap(), new);
    }

    #[test]
    fn a_file_without_its_marks_is_an_error() {
        for text in [
            String::new(),
            BEGIN.to_owned(),
            END.to_owned(),
            format!("{END}{BEGIN}"),
            format!("{BEGIN}{END}{BEGIN}{END}"),
        ] {
            let error = between_marks(&text, "").unwrap_err().to_string();
            assert!(error.contains("mark"), "{text:?}: {error}");
        }
    }
}
