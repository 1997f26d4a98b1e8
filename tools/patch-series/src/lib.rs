//! A series of patches to a source tree: `series.toml`, the unified diffs that it lists, and whole files laid over the tree.
//!
//! ggml-sys's build script applies the series, and maintainers' commands edit it: both through this crate, so that a hunk
//! that fits here fits there. Trees are texts in memory, applied strictly: a hunk may have moved, but its lines must be
//! there, all of them.
//!
//! ```
//! use patch_series::{Texts, apply_diff};
//!
//! let mut tree = Texts::from([("a.c".to_owned(), "one\ntwo\n".to_owned())]);
//! apply_diff("0001-x", "--- a/a.c\n+++ b/a.c\n@@ -2 +2 @@\n-two\n+2\n", &mut tree)?;
//! assert_eq!(tree["a.c"], "one\n2\n");
//! # Ok::<(), patch_series::Error>(())
//! ```
#![deny(missing_docs)]

mod diff;
mod error;
mod files;
mod probe;

use std::{collections::BTreeMap, fs, path::Path};

pub use crate::{
    diff::{Direction, apply_diff, reverse_diff},
    error::Error,
    files::{read_folder, read_text},
    probe::{FailedHunk, failed_hunks, fits_at_one_place},
};

/// Texts by path relative to the tree's root, with `/` on every host.
pub type Texts = BTreeMap<String, String>;

/// The folder of a tree in which overlays lie.
pub const OVERLAY_ROOT: &str = "src/";

/// `series.toml`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    patch: Vec<Entry>,
}

/// What a patch is for. All but the name is for people, and must be there.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The diff's file stem.
    pub name: String,
    /// What is wrong or missing without it.
    pub fixes: String,
    /// The tests that fail without it.
    pub proof: Vec<String>,
    /// Where upstream stands.
    pub upstream: String,
    /// What makes it unnecessary.
    pub drop_when: String,
    /// The faults of the tree that it mends; none, where it only adds something.
    #[serde(default, rename = "finding")]
    pub findings: Vec<Finding>,
}

impl Entry {
    /// What the name begins with, up to the first `-`: how people call the patch.
    #[must_use]
    pub fn number(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }
}

/// A fault of the tree that a patch mends, so that it can be reported and seen without the patch. It is for people.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The part of the tree, by which findings are grouped. The series does not say which there are.
    pub section: String,
    /// The file and the function, or the operation.
    #[serde(rename = "where")]
    pub place: String,
    /// What is wrong there.
    pub wrong: String,
    /// The smallest input that shows it.
    pub reproducer: String,
    /// The [numbers](Entry::number) of other patches that mending it takes besides the one that it stands at.
    #[serde(default)]
    pub also: Vec<String>,
}

/// A folder `patches/`, read and checked.
#[derive(Debug, Default)]
pub struct Series {
    toml: String,
    /// Entry and text of each diff, in the order of application.
    patches: Vec<(Entry, String)>,
    /// Whole new files by their path below `src`.
    overlay: Texts,
}

impl Series {
    /// Reads `dir`. A diff that the series does not list, or the reverse, is an error: either would be silently lost.
    ///
    /// # Errors
    /// What cannot be read, does not parse, or does not fit together.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let file = dir.join("series.toml");
        let toml = if file.is_file() {
            read_text(&file)?
        } else {
            String::new()
        };
        let entries: File = toml::from_str(&toml).map_err(|error| Error::Series {
            file,
            reason: error.to_string(),
        })?;

        let mut present = diffs_in(dir)?;
        let mut patches = Vec::new();
        for entry in entries.patch {
            let diff = present
                .remove(&entry.name)
                .ok_or_else(|| Error::NoSuchPatch {
                    name: entry.name.clone(),
                })?;
            patches.push((entry, diff));
        }
        if let Some((name, _)) = present.pop_first() {
            return Err(Error::NotInSeries { name });
        }
        Ok(Self {
            toml,
            patches,
            overlay: read_folder(&dir.join("src"))?,
        })
    }

    /// The entries with their diffs, in the order of application.
    #[must_use]
    pub fn patches(&self) -> &[(Entry, String)] {
        &self.patches
    }

    /// The whole files by their path below `src`.
    #[must_use]
    pub fn overlay(&self) -> &Texts {
        &self.overlay
    }

    /// Lays the whole files over `tree`, then applies the diffs in their order.
    ///
    /// # Errors
    /// The first thing that does not fit. `tree` is partly patched then.
    pub fn apply(&self, tree: &mut Texts) -> Result<(), Error> {
        self.lay_over(tree)?;
        self.patches
            .iter()
            .try_for_each(|(entry, diff)| apply_diff(&entry.name, diff, tree))
    }

    /// Adds the whole files alone.
    ///
    /// # Errors
    /// When one would replace a file of the tree.
    pub fn lay_over(&self, tree: &mut Texts) -> Result<(), Error> {
        for (overlay, text) in &self.overlay {
            let file = format!("{OVERLAY_ROOT}{overlay}");
            if tree.contains_key(&file) {
                return Err(Error::Overlay {
                    overlay: overlay.clone(),
                    file,
                });
            }
            tree.insert(file, text.clone());
        }
        Ok(())
    }

    /// Undoes [`apply`](Self::apply).
    ///
    /// # Errors
    /// When `tree` is not the patched tree.
    pub fn reverse(&self, tree: &mut Texts) -> Result<(), Error> {
        for (entry, diff) in self.patches.iter().rev() {
            reverse_diff(&entry.name, diff, tree)?;
        }
        for overlay in self.overlay.keys() {
            tree.remove(&format!("{OVERLAY_ROOT}{overlay}"));
        }
        Ok(())
    }

    /// Path below `patches/` and text of every input, for whoever hashes them.
    pub fn inputs(&self) -> impl Iterator<Item = (String, &str)> {
        let toml = std::iter::once(("series.toml".to_owned(), self.toml.as_str()));
        let diffs = self
            .patches
            .iter()
            .map(|(entry, diff)| (format!("{}.patch", entry.name), diff.as_str()));
        let overlay = self
            .overlay
            .iter()
            .map(|(path, text)| (format!("{OVERLAY_ROOT}{path}"), text.as_str()));
        toml.chain(diffs).chain(overlay)
    }
}

/// The texts of `*.patch` in `dir` by file stem.
fn diffs_in(dir: &Path) -> Result<Texts, Error> {
    let mut diffs = Texts::new();
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let path = entry.map_err(Error::io("read", dir))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "patch")
        {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            diffs.insert(stem.into_owned(), read_text(&path)?);
        }
    }
    Ok(diffs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
                        --- a/include/b.h\n+++ b/include/b.h\n@@ -1 +1,2 @@\n b\n+c\n";
    const ENTRY: &str = "[[patch]]\nname = \"0001-x\"\nfixes = \"f\"\nproof = [\"t\"]\nupstream = \"u\"\ndrop_when = \"d\"\n";

    fn tree() -> Texts {
        texts(&[("src/a.c", "one\ntwo\nthree\n"), ("include/b.h", "b\n")])
    }

    fn texts(files: &[(&str, &str)]) -> Texts {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        files.iter().map(owned).collect()
    }

    fn stack(files: &[(&str, &str)]) -> Result<Series, Error> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Series::read(dir.path())
    }

    #[test]
    fn no_series_and_no_patches_change_nothing() {
        let mut patched = tree();
        stack(&[]).unwrap().apply(&mut patched).unwrap();
        assert_eq!(patched, tree());
    }

    #[test]
    fn a_diff_of_two_files_and_an_overlay_are_applied() {
        let stack = stack(&[
            ("series.toml", ENTRY),
            ("0001-x.patch", DIFF),
            ("src/ggml-metal/new.cpp", "int n;\n"),
        ])
        .unwrap();
        let mut tree = tree();
        stack.apply(&mut tree).unwrap();
        assert_eq!(tree["src/a.c"], "one\n2\nthree\n");
        assert_eq!(tree["include/b.h"], "b\nc\n");
        assert_eq!(tree["src/ggml-metal/new.cpp"], "int n;\n");
        let inputs: Vec<_> = stack.inputs().map(|(name, _)| name).collect();
        assert_eq!(
            inputs,
            ["series.toml", "0001-x.patch", "src/ggml-metal/new.cpp"]
        );
    }

    #[test]
    fn the_order_is_the_order_of_the_series() {
        let second = "--- a/src/a.c\n+++ b/src/a.c\n@@ -2 +2 @@\n-2\n+II\n";
        let series =
            ENTRY.replace("0001-x", "0002-first") + &ENTRY.replace("0001-x", "0001-second");
        let stack = stack(&[
            ("series.toml", &series),
            ("0002-first.patch", DIFF),
            ("0001-second.patch", second),
        ])
        .unwrap();
        let mut tree = tree();
        stack.apply(&mut tree).unwrap();
        assert_eq!(tree["src/a.c"], "one\nII\nthree\n");
    }

    #[test]
    fn a_failed_hunk_names_the_patch_and_the_file() {
        let stack = stack(&[("series.toml", ENTRY), ("0001-x.patch", DIFF)]).unwrap();
        let mut other = tree();
        other.insert("include/b.h".into(), "something else\n".into());
        let error = stack.apply(&mut other).unwrap_err().to_string();
        assert!(
            error.contains("0001-x.patch does not apply to include/b.h"),
            "{error}"
        );
        assert!(error.contains("hunk #1"), "{error}");
    }

    #[test]
    fn a_source_that_has_the_change_already_is_recognised() {
        let stack = stack(&[("series.toml", ENTRY), ("0001-x.patch", DIFF)]).unwrap();
        let mut patched = tree();
        patched.insert("src/a.c".into(), "one\n2\nthree\n".into());
        let error = stack.apply(&mut patched).unwrap_err().to_string();
        assert!(error.contains("has the change already"), "{error}");
    }

    #[test]
    fn a_patch_for_a_missing_file_names_it() {
        let stack = stack(&[("series.toml", ENTRY), ("0001-x.patch", DIFF)]).unwrap();
        let error = stack.apply(&mut Texts::new()).unwrap_err().to_string();
        assert!(error.contains("src/a.c (there is no such file)"), "{error}");
    }

    #[test]
    fn series_and_folder_must_agree() {
        let listed_only = stack(&[("series.toml", ENTRY)]).unwrap_err().to_string();
        assert!(listed_only.contains("lists 0001-x"), "{listed_only}");
        let present_only = stack(&[("0001-x.patch", DIFF)]).unwrap_err().to_string();
        assert!(present_only.contains("does not list it"), "{present_only}");
    }

    #[test]
    fn an_entry_without_its_proof_or_with_an_unknown_key_is_refused() {
        let incomplete = stack(&[("series.toml", "[[patch]]\nname = \"0001-x\"\n")])
            .unwrap_err()
            .to_string();
        assert!(incomplete.contains("missing field `fixes`"), "{incomplete}");
        let misspelt = ENTRY.replace("drop_when", "dropwhen");
        assert!(
            stack(&[("series.toml", &misspelt)])
                .unwrap_err()
                .to_string()
                .contains("dropwhen")
        );
    }

    #[test]
    fn findings_belong_to_the_patch_before_them() {
        let finding = "[[patch.finding]]\nsection = \"s\"\nwhere = \"w\"\nwrong = \"x\"\nreproducer = \"r\"\n";
        let second = ENTRY.replace("0001-x", "0002-y");
        let toml = format!("{ENTRY}{finding}{finding}also = [\"0002\"]\n{second}");
        let read = |toml: &str| {
            stack(&[
                ("series.toml", toml),
                ("0001-x.patch", DIFF),
                ("0002-y.patch", DIFF),
            ])
        };
        let series = read(&toml).unwrap();
        let [(first, _), (second, _)] = series.patches() else {
            panic!("two patches");
        };
        assert_eq!((first.number(), second.number()), ("0001", "0002"));
        let also: Vec<_> = first.findings.iter().map(|finding| &finding.also).collect();
        assert_eq!(also, [&vec![], &vec!["0002".to_owned()]]);
        assert_eq!(first.findings[0].place, "w");
        assert!(second.findings.is_empty());

        let misspelt = toml.replacen("where", "place", 1);
        let error = read(&misspelt).unwrap_err().to_string();
        assert!(error.contains("unknown field `place`"), "{error}");
    }

    #[test]
    fn an_overlay_may_not_replace_an_upstream_file() {
        let error = stack(&[("src/a.c", "ours")])
            .unwrap()
            .apply(&mut tree())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("would replace ggml's own src/a.c"),
            "{error}"
        );
    }

    #[test]
    fn text_that_is_no_diff_is_refused() {
        let stack = stack(&[("series.toml", ENTRY), ("0001-x.patch", "hello\n")]).unwrap();
        let error = stack.apply(&mut tree()).unwrap_err().to_string();
        assert!(
            error.contains("0001-x.patch is not a unified diff"),
            "{error}"
        );
    }

    #[test]
    fn reversing_gives_the_pristine_tree_back() {
        let stack = stack(&[
            ("series.toml", ENTRY),
            ("0001-x.patch", DIFF),
            ("src/new.cpp", "int n;\n"),
        ])
        .unwrap();
        let mut patched = tree();
        stack.apply(&mut patched).unwrap();
        assert_ne!(patched, tree());
        stack.reverse(&mut patched).unwrap();
        assert_eq!(patched, tree());
        let error = stack.reverse(&mut patched).unwrap_err().to_string();
        assert!(
            error.contains("0001-x.patch does not apply to include/b.h"),
            "{error}"
        );
    }
}
