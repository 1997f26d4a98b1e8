//! What the files below `patches/` were when a working tree was made from them.
//!
//! A refresh overwrites them, so it must know whether somebody changed them meanwhile. `series.toml` is not among them: a
//! refresh only reads it.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Result;
use sha2::{Digest, Sha256};

/// File in the repository's `.git`.
const FILE: &str = "xtask-series";

/// Hashes by path below `patches/`.
type Stamp = BTreeMap<String, String>;

/// Remembers `patches` as it is now in the repository at `dir`.
pub fn write(patches: &Path, dir: &Path) -> Result<()> {
    let lines = current(patches)?
        .into_iter()
        .map(|(path, hash)| format!("{hash} {path}\n"));
    Ok(fs::write(
        dir.join(".git").join(FILE),
        lines.collect::<String>(),
    )?)
}

/// Files that are new or different since [`write`]. One that is gone was dropped on purpose.
pub fn changed(patches: &Path, dir: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(dir.join(".git").join(FILE)).unwrap_or_default();
    let then: Stamp = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(hash, path)| (path.to_owned(), hash.to_owned()))
        .collect();
    let differs = |(path, hash): &(String, String)| then.get(path) != Some(hash);
    let now = current(patches)?.into_iter().filter(differs);
    Ok(now.map(|(path, _)| path).collect())
}

fn current(patches: &Path) -> Result<Stamp> {
    let files = patch_series::read_folder(patches)?.into_iter();
    let texts = files.filter(|(path, _)| path.starts_with("src/") || path.ends_with(".patch"));
    Ok(texts.map(|(path, text)| (path, digest(&text))).collect())
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
