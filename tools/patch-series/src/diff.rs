//! One diff, which may change several files.

use diffy::{
    Patch,
    patch_set::{FileOperation, ParseOptions, PatchSet},
};

use crate::{Error, Texts};

/// Which way a diff is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the old text to the new one.
    Forward,
    /// Back again.
    Backward,
}

/// Applies `diff` to the files that it names.
///
/// # Errors
/// When it is no diff of existing files, or does not fit.
pub fn apply_diff(name: &str, diff: &str, tree: &mut Texts) -> Result<(), Error> {
    change(name, diff, tree, Direction::Forward)
}

/// Takes `diff` back out of the files that it names.
///
/// # Errors
/// When it is no diff of existing files, or they do not hold its change.
pub fn reverse_diff(name: &str, diff: &str, tree: &mut Texts) -> Result<(), Error> {
    change(name, diff, tree, Direction::Backward)
}

fn change(name: &str, diff: &str, tree: &mut Texts, direction: Direction) -> Result<(), Error> {
    let mut parts = parse(name, diff)?;
    if direction == Direction::Backward {
        // A file named twice is changed twice: undo the last change first.
        parts.reverse();
    }
    for (file, hunks) in parts {
        let text = patched(name, &file, &hunks, tree, direction)?;
        tree.insert(file, text);
    }
    Ok(())
}

/// The files that `diff` changes, with their hunks.
pub(crate) fn parse<'d>(name: &str, diff: &'d str) -> Result<Vec<(String, Patch<'d, str>)>, Error> {
    let not_a_diff = |reason: String| Error::Diff {
        name: name.to_owned(),
        reason,
    };
    let mut files = Vec::new();
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
        let file = modified.into_owned();
        let hunks = part
            .patch()
            .as_text()
            .ok_or_else(|| not_a_diff("it holds a binary diff".to_owned()))?;
        files.push((file, hunks.clone()));
    }
    if files.is_empty() {
        return Err(not_a_diff("it changes no file".to_owned()));
    }
    Ok(files)
}

/// The new text of one file, or an error that says whether the change is there already.
fn patched(
    name: &str,
    file: &str,
    hunks: &Patch<'_, str>,
    tree: &Texts,
    direction: Direction,
) -> Result<String, Error> {
    let failed = |reason: String| Error::Hunk {
        name: name.to_owned(),
        file: file.to_owned(),
        reason,
    };
    let text = tree
        .get(file)
        .ok_or_else(|| failed("there is no such file".to_owned()))?;
    let reversed = hunks.reverse();
    let (wanted, opposite) = match direction {
        Direction::Forward => (hunks, &reversed),
        Direction::Backward => (&reversed, hunks),
    };
    diffy::apply(text, wanted).map_err(|error| {
        failed(if diffy::apply(text, opposite).is_ok() {
            "this source has the change already".to_owned()
        } else {
            error.to_string()
        })
    })
}
