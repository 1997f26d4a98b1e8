//! What ggml's public functions assert, as a snapshot that is committed.
//!
//! ggml-rs checks before each call what ggml would assert. When a new ggml, or a patch of ours, changes an assertion, the
//! snapshot changes, and the check has to be read again.

mod callers;
mod snapshot;
mod source;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use patch_series::{Series, Texts};

use crate::pin::{Pin, checkout};

pub use snapshot::Snapshot;

/// Public headers, and the files that define their functions.
const HEADERS: [&str; 3] = [
    "include/ggml.h",
    "include/ggml-alloc.h",
    "include/ggml-backend.h",
];
const SOURCES: [&str; 4] = [
    "src/ggml.c",
    "src/ggml-alloc.c",
    "src/ggml-backend.cpp",
    "src/ggml-backend-reg.cpp",
];

/// The committed snapshot.
pub fn file() -> PathBuf {
    checkout().join("ggml-rs/asserts.txt")
}

/// Reads the pinned sources with the series applied.
///
/// # Errors
/// When they cannot be obtained, a hunk does not fit, or a file cannot be read as C.
pub fn current() -> Result<Snapshot> {
    let root = checkout();
    let mut texts = Pin::resolve(&root.join("vendor"))?.texts()?;
    Series::read(&root.join("patches"))?.apply(&mut texts)?;
    of(&texts)
}

/// The snapshot of a tree.
fn of(texts: &Texts) -> Result<Snapshot> {
    let text = |path: &str| {
        texts
            .get(path)
            .with_context(|| format!("ggml has no {path}"))
    };
    let mut public = Vec::new();
    for path in HEADERS {
        public.extend(source::declared(text(path)?));
    }
    let mut snapshot = Snapshot::new(public);
    for path in SOURCES {
        let functions = source::functions(text(path)?).with_context(|| path.to_owned())?;
        snapshot.add(&functions);
    }
    Ok(snapshot)
}

/// Writes the snapshot.
///
/// # Errors
/// As [`current`], and when the file cannot be written.
pub fn write() -> Result<()> {
    let snapshot = current()?;
    let file = file();
    fs::write(&file, snapshot.to_string())
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("wrote {}: {}", file.display(), snapshot.summary());
    Ok(())
}

/// Whether the committed snapshot is what the sources say; prints what differs.
///
/// # Errors
/// As [`current`], and when the file cannot be read.
pub fn check() -> Result<bool> {
    let snapshot = current()?;
    let file = file();
    let committed =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    match snapshot.difference(&committed) {
        None => println!("{} holds: {}", file.display(), snapshot.summary()),
        Some(difference) => {
            println!("{difference}");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prints the functions that ggml-rs calls, that assert something, and whose wrapper names no check.
///
/// # Errors
/// As [`current`], and when ggml-rs's sources cannot be read.
pub fn print_unchecked() -> Result<()> {
    let snapshot = current()?;
    let callers = callers::read(&checkout().join("ggml-rs/src"))?;
    let mut unchecked = 0;
    for (name, count) in snapshot.counts() {
        if let Some(caller) = callers.unchecked(name) {
            println!("{name}: {count} assertions, called in {caller}");
            unchecked += 1;
        }
    }
    println!("{unchecked} functions to look at");
    Ok(())
}
