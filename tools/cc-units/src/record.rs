//! The record beside an object: what the object was made from.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{Error, roots::Roots};

/// First line of every record; another version of the format is simply stale.
const HEADER: &str = "cc-units record 1";

/// Content hashes of files, each file read once.
#[derive(Default)]
pub(crate) struct FileHashes(HashMap<PathBuf, Option<String>>);

impl FileHashes {
    /// The hash of the file's bytes, `None` where it cannot be read.
    fn get(&mut self, path: &Path) -> Option<&str> {
        if !self.0.contains_key(path) {
            let hash = fs::read(path).ok().map(|bytes| hex_digest(&bytes));
            self.0.insert(path.to_owned(), hash);
        }
        self.0.get(path)?.as_deref()
    }
}

/// Lower-case hexadecimal SHA-256.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// Does the record at `path` say that its object was made by `command` from files that still have the same content?
pub(crate) fn holds(path: &Path, command: &str, roots: &Roots, hashes: &mut FileHashes) -> bool {
    let Ok(text) = fs::read_to_string(path) else {
        return false;
    };
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) || lines.next() != Some(command) {
        return false;
    }
    let mut files = 0;
    for line in lines {
        let Some((hash, name)) = line.split_once(' ') else {
            return false;
        };
        if hashes.get(&roots.resolve(name)) != Some(hash) {
            return false;
        }
        files += 1;
    }
    files > 0
}

/// Writes the record of an object made by `command` from `files`.
pub(crate) fn write(
    path: &Path,
    command: &str,
    files: &[PathBuf],
    roots: &Roots,
    hashes: &mut FileHashes,
) -> Result<(), Error> {
    let mut text = format!("{HEADER}\n{command}\n");
    for file in files {
        // A file that is gone by now leaves a hash that nothing matches: the unit is stale, as it should be.
        let hash = hashes.get(file).unwrap_or("unreadable");
        let _ = writeln!(text, "{hash} {}", roots.name(file));
    }
    fs::write(path, text).map_err(Error::io("write", path))
}
