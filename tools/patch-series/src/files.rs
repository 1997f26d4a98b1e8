//! Reading folders of texts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Error, Texts};

/// A text with `\n` line ends, whatever a checkout on Windows made of them.
///
/// # Errors
/// When the file cannot be read as UTF-8.
pub fn read_text(path: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    Ok(text.replace("\r\n", "\n"))
}

/// All texts below `dir` by their path relative to it, with `/` on every host; none where it does not exist.
///
/// # Errors
/// When a file or folder cannot be read.
pub fn read_folder(dir: &Path) -> Result<Texts, Error> {
    let mut texts = Texts::new();
    for path in files_below(dir)? {
        let relative = path.strip_prefix(dir).unwrap_or(&path);
        let relative = relative.to_string_lossy().replace('\\', "/");
        texts.insert(relative, read_text(&path)?);
    }
    Ok(texts)
}

fn files_below(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    if !dir.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let path = entry.map_err(Error::io("read", dir))?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}
