//! The part of ggml's source tree that we compile, held in memory while it is patched.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::error::Error;

const STEP: &str = "source";

/// Backends that we compile; the folders of all others are left behind.
const BACKENDS: [&str; 3] = ["ggml-cpu", "ggml-metal", "ggml-blas"];

/// Kinds of files that a build reads.
const EXTENSIONS: [&str; 6] = ["c", "cpp", "h", "m", "metal", "in"];

/// Texts by path relative to ggml's root, with `/` on every host (`src/ggml-metal/ggml-metal.cpp`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads `include/` and the needed part of `src/` below `ggml`.
    pub fn read(ggml: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        for folder in ["include", "src"] {
            tree.read_folder(&ggml.join(folder), folder)?;
        }
        Ok(tree)
    }

    fn read_folder(&mut self, dir: &Path, relative: &str) -> Result<(), Error> {
        for entry in fs::read_dir(dir).map_err(Error::io(STEP, "read", dir))? {
            let path = entry.map_err(Error::io(STEP, "read", dir))?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let relative = format!("{relative}/{name}");
            if path.is_dir() {
                let other_backend =
                    relative.starts_with("src/ggml-") && relative.matches('/').count() == 1;
                if !other_backend || BACKENDS.contains(&name.as_str()) {
                    self.read_folder(&path, &relative)?;
                }
            } else if has_extension(&path, &EXTENSIONS) {
                self.insert(relative, read_text(&path)?);
            }
        }
        Ok(())
    }

    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// The files for whoever changes many of them.
    pub fn texts_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.0
    }

    /// Adds or replaces a file.
    pub fn insert(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.0.insert(path.into(), text.into());
    }

    /// All files in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Paths directly in `folder` that have `extension`.
    pub fn sources_in<'t>(
        &'t self,
        folder: &'t str,
        extension: &'t str,
    ) -> impl Iterator<Item = &'t str> {
        self.0.keys().map(String::as_str).filter(move |path| {
            path.rsplit_once('/').is_some_and(|(parent, name)| {
                parent == folder
                    && name
                        .rsplit_once('.')
                        .is_some_and(|(_, found)| found == extension)
            })
        })
    }

    /// Makes `dir` hold exactly this tree. Files whose content is right are not touched, so that whoever compiles with
    /// time stamps, and whoever reads them, sees only real changes.
    pub fn write_to(&self, dir: &Path) -> Result<(), Error> {
        for path in existing_files(dir)? {
            let relative = path
                .strip_prefix(dir)
                .unwrap_or(&path)
                .to_string_lossy()
                .replace('\\', "/");
            if !self.0.contains_key(&relative) {
                fs::remove_file(&path).map_err(Error::io(STEP, "remove", &path))?;
            }
        }
        self.files()
            .try_for_each(|(path, text)| write_if_changed(&dir.join(path), text))
    }
}

/// Writes `text` unless the file holds it already.
pub fn write_if_changed(path: &Path, text: &str) -> Result<(), Error> {
    write_bytes_if_changed(path, text.as_bytes())
}

/// Writes `bytes` unless the file holds them already.
pub fn write_bytes_if_changed(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io(STEP, "create", parent))?;
    }
    fs::write(path, bytes).map_err(Error::io(STEP, "write", path))
}

/// A text with `\n` line ends, whatever a checkout on Windows made of them.
pub fn read_text(path: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(path).map_err(Error::io(STEP, "read", path))?;
    Ok(text.replace("\r\n", "\n"))
}

/// All files below `dir`; none where it does not exist.
pub fn existing_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(Error::io(STEP, "read", &folder))? {
            let path = entry.map_err(Error::io(STEP, "read", &folder))?.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    Ok(files)
}

fn has_extension(path: &Path, wanted: &[&str]) -> bool {
    path.extension()
        .is_some_and(|extension| wanted.iter().any(|wanted| extension == *wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("include/ggml.h", "int a;\r\n"),
            ("src/ggml.c", "int b;\n"),
            ("src/ggml-cuda/x.cpp", "cuda"),
            ("src/ggml-metal/kernels/k.metal", "kernel"),
            ("src/ggml-cpu/arch/x86/q.c", "q"),
            ("src/CMakeLists.txt", "cmake"),
        ] {
            write_if_changed(&dir.path().join(path), text).unwrap();
        }
        let tree = Tree::read(dir.path()).unwrap();
        (dir, tree)
    }

    #[test]
    fn other_backends_and_other_kinds_of_files_stay_behind() {
        let (_dir, tree) = upstream();
        let paths: Vec<_> = tree.files().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            [
                "include/ggml.h",
                "src/ggml-cpu/arch/x86/q.c",
                "src/ggml-metal/kernels/k.metal",
                "src/ggml.c"
            ]
        );
        assert_eq!(tree.get("include/ggml.h"), Some("int a;\n"));
    }

    #[test]
    fn writing_again_touches_only_what_changed_and_removes_what_is_gone() {
        let (dir, mut tree) = upstream();
        let out = dir.path().join("out");
        tree.insert("src/extra.cpp", "");
        tree.write_to(&out).unwrap();
        let modified = |path: &str| fs::metadata(out.join(path)).unwrap().modified().unwrap();
        let before = modified("src/ggml.c");

        let (_other, mut tree) = upstream();
        tree.insert("include/ggml.h", "int changed;\n");
        tree.write_to(&out).unwrap();
        assert_eq!(modified("src/ggml.c"), before);
        assert_eq!(
            fs::read_to_string(out.join("include/ggml.h")).unwrap(),
            "int changed;\n"
        );
        assert!(!out.join("src/extra.cpp").exists());
    }

    #[test]
    fn sources_are_found_by_folder_and_kind() {
        let (_dir, tree) = upstream();
        assert_eq!(
            tree.sources_in("src", "c").collect::<Vec<_>>(),
            ["src/ggml.c"]
        );
        assert_eq!(
            tree.sources_in("src/ggml-metal/kernels", "metal").count(),
            1
        );
    }
}
