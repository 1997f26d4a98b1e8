//! This crate's sources: which functions of ggml they call, and which names they document.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What is in the sources, outside comments, strings and unit tests.
#[derive(Debug, Default)]
pub struct Sources {
    calls: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

impl Sources {
    /// Every `.rs` file below `dir`.
    pub fn read(dir: &Path) -> Self {
        let mut sources = Self::default();
        sources.add_folder(dir);
        assert!(!sources.calls.is_empty(), "no sources in {}", dir.display());
        sources
    }

    #[allow(dead_code, reason = "for the tests of the comparison")]
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut sources = Self::default();
        for text in texts {
            sources.add(text);
        }
        sources
    }

    /// Whether some code names `sys::name`: calls it, or passes it on.
    pub fn calls(&self, name: &str) -> bool {
        self.calls.contains(name)
    }

    /// Whether something carries `#[doc(alias = "name")]`.
    pub fn has_alias(&self, name: &str) -> bool {
        self.aliases.contains(name)
    }

    fn add_folder(&mut self, dir: &Path) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.file_stem().is_some_and(|name| name == "tests") {
                // Unit tests in files of their own.
            } else if path.is_dir() {
                self.add_folder(&path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                self.add(&fs::read_to_string(&path).unwrap());
            }
        }
    }

    fn add(&mut self, text: &str) {
        let text = without_tests(text);
        for line in text.lines().map(str::trim) {
            if line.starts_with("//") {
                continue;
            }
            let aliases = line.split("alias = \"").skip(1);
            self.aliases
                .extend(aliases.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            // A `//` inside a string only hides code that stands behind it on the line.
            let code = line.split("//").next().unwrap_or_default();
            // Strings hold the odd parts.
            for part in code.split('"').step_by(2) {
                let names = part.split("sys::").skip(1);
                self.calls.extend(names.map(identifier));
            }
        }
    }
}

/// The identifier that `text` begins with.
fn identifier(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Unit tests stand at the end of their file.
fn without_tests(text: &str) -> &str {
    let is_tests = |at: &usize| {
        let rest = text[*at..].trim_start_matches("#[cfg(test)]").trim_start();
        rest.starts_with("mod ") && rest.lines().next().is_some_and(|line| line.contains('{'))
    };
    let end = text
        .match_indices("#[cfg(test)]")
        .map(|(at, _)| at)
        .find(is_tests);
    &text[..end.unwrap_or(text.len())]
}
