//! The patch stack: `series.toml`, the diffs it lists, and the whole files of ours that are laid over the tree.

use std::{collections::BTreeMap, fs, path::Path};

use diffy::{
    Patch,
    patch_set::{FileOperation, ParseOptions, PatchSet},
};

use super::{
    error::Error,
    tree::{Tree, existing_files, read_text},
};

const STEP: &str = "patches";

/// `series.toml`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    #[serde(default)]
    patch: Vec<Entry>,
}

/// What a patch is for. All but the name is for people, and must be there.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "read by people; deserialised so that a missing one is an error"
)]
struct Entry {
    name: String,
    fixes: String,
    proof: Vec<String>,
    upstream: String,
    drop_when: String,
}

/// Everything below `patches/`, read and checked.
#[derive(Debug, Default)]
pub struct Stack {
    series: String,
    /// Name and text of each diff, in the order of application.
    diffs: Vec<(String, String)>,
    /// Whole new files by their path below `patches/src`.
    overlay: BTreeMap<String, String>,
}

impl Stack {
    /// Reads `dir`. A diff that the series does not list, or the reverse, is an error: either would be silently lost.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let series_file = dir.join("series.toml");
        let series_text = if series_file.is_file() {
            read_text(&series_file)?
        } else {
            String::new()
        };
        let series: Series = toml::from_str(&series_text).map_err(|error| Error::Series {
            file: series_file,
            reason: error.to_string(),
        })?;

        let mut present = diffs_in(dir)?;
        let mut diffs = Vec::new();
        for Entry { name, .. } in series.patch {
            let text = present
                .remove(&name)
                .ok_or_else(|| Error::NoSuchPatch { name: name.clone() })?;
            diffs.push((name, text));
        }
        if let Some((name, _)) = present.pop_first() {
            return Err(Error::NotInSeries { name });
        }
        Ok(Self {
            series: series_text,
            diffs,
            overlay: overlay_in(&dir.join("src"))?,
        })
    }

    /// Lays our own files over `tree`, then applies the diffs in their order.
    pub fn apply(&self, tree: &mut Tree) -> Result<(), Error> {
        for (overlay, text) in &self.overlay {
            let file = format!("src/{overlay}");
            if tree.get(&file).is_some() {
                return Err(Error::Overlay {
                    overlay: overlay.clone(),
                    file,
                });
            }
            tree.insert(file, text.as_str());
        }
        self.diffs
            .iter()
            .try_for_each(|(name, diff)| apply_diff(name, diff, tree))
    }

    /// Name and text of every input, for the build's hash.
    pub fn inputs(&self) -> impl Iterator<Item = (String, &str)> {
        let series = std::iter::once(("series.toml".to_owned(), self.series.as_str()));
        let diffs = self
            .diffs
            .iter()
            .map(|(name, text)| (format!("{name}.patch"), text.as_str()));
        let overlay = self
            .overlay
            .iter()
            .map(|(path, text)| (format!("src/{path}"), text.as_str()));
        series.chain(diffs).chain(overlay)
    }
}

/// The texts of `*.patch` in `dir` by file stem.
fn diffs_in(dir: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut diffs = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(Error::io(STEP, "read", dir))? {
        let path = entry.map_err(Error::io(STEP, "read", dir))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "patch")
        {
            let stem = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            diffs.insert(stem, read_text(&path)?);
        }
    }
    Ok(diffs)
}

fn overlay_in(dir: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut overlay = BTreeMap::new();
    for path in existing_files(dir)? {
        let relative = path
            .strip_prefix(dir)
            .unwrap_or(&path)
            .to_string_lossy()
            .replace('\\', "/");
        overlay.insert(relative, read_text(&path)?);
    }
    Ok(overlay)
}

/// Applies one diff, which may touch several files.
fn apply_diff(name: &str, diff: &str, tree: &mut Tree) -> Result<(), Error> {
    let not_a_diff = |reason: String| Error::Diff {
        name: name.to_owned(),
        reason,
    };
    let mut files = 0;
    for part in PatchSet::parse(diff, ParseOptions::unidiff()) {
        let part = part.map_err(|error| not_a_diff(error.to_string()))?;
        let FileOperation::Modify { original, modified } = part.operation().strip_prefix(1) else {
            return Err(not_a_diff(
                "it adds, removes or renames a file; new files belong in patches/src".to_owned(),
            ));
        };
        if original != modified {
            return Err(not_a_diff(format!("it renames {original} to {modified}")));
        }
        let hunks = part
            .patch()
            .as_text()
            .ok_or_else(|| not_a_diff("it holds a binary diff".to_owned()))?;
        let text = patched(name, &modified, hunks, tree)?;
        tree.insert(modified, text);
        files += 1;
    }
    if files == 0 {
        return Err(not_a_diff("it changes no file".to_owned()));
    }
    Ok(())
}

/// The new text of one file, or an error that says whether the change is there already.
fn patched(name: &str, file: &str, hunks: &Patch<'_, str>, tree: &Tree) -> Result<String, Error> {
    let failed = |reason: String| Error::Hunk {
        name: name.to_owned(),
        file: file.to_owned(),
        reason,
    };
    let text = tree
        .get(file)
        .ok_or_else(|| failed("there is no such file".to_owned()))?;
    diffy::apply(text, hunks).map_err(|error| {
        let already = diffy::apply(text, &hunks.reverse()).is_ok();
        failed(if already {
            "this source has the change already".to_owned()
        } else {
            error.to_string()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::tree::write_if_changed;

    const DIFF: &str = "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
                        --- a/include/b.h\n+++ b/include/b.h\n@@ -1 +1,2 @@\n b\n+c\n";
    const ENTRY: &str = "[[patch]]\nname = \"0001-x\"\nfixes = \"f\"\nproof = [\"t\"]\nupstream = \"u\"\ndrop_when = \"d\"\n";

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.insert("src/a.c", "one\ntwo\nthree\n");
        tree.insert("include/b.h", "b\n");
        tree
    }

    fn stack(files: &[(&str, &str)]) -> Result<Stack, Error> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            write_if_changed(&dir.path().join(path), text).unwrap();
        }
        Stack::read(dir.path())
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
        assert_eq!(tree.get("src/a.c"), Some("one\n2\nthree\n"));
        assert_eq!(tree.get("include/b.h"), Some("b\nc\n"));
        assert_eq!(tree.get("src/ggml-metal/new.cpp"), Some("int n;\n"));
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
        assert_eq!(tree.get("src/a.c"), Some("one\nII\nthree\n"));
    }

    #[test]
    fn a_failed_hunk_names_the_patch_and_the_file() {
        let stack = stack(&[("series.toml", ENTRY), ("0001-x.patch", DIFF)]).unwrap();
        let mut other = tree();
        other.insert("include/b.h", "something else\n");
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
        patched.insert("src/a.c", "one\n2\nthree\n");
        let error = stack.apply(&mut patched).unwrap_err().to_string();
        assert!(error.contains("has the change already"), "{error}");
    }

    #[test]
    fn a_patch_for_a_missing_file_names_it() {
        let stack = stack(&[("series.toml", ENTRY), ("0001-x.patch", DIFF)]).unwrap();
        let error = stack.apply(&mut Tree::default()).unwrap_err().to_string();
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
}
