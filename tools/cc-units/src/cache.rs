//! Objects shared between builds.
//!
//! Cargo gives every profile, feature set and checkout a folder of its own, and each would compile the same sources again.
//! Where [`VARIABLE`] names a folder, an object is looked for there before it is compiled, and left there afterwards with
//! its record. An entry is used only where its record holds, exactly as for an object of the build itself.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    record::{self, FileHashes},
    roots::Roots,
};

/// The environment variable that names the folder; nothing is shared without it.
const VARIABLE: &str = "GGML_RS_OBJECT_CACHE";

/// A folder of objects and records. A cache that cannot be read or written costs time, not correctness, so nothing here fails.
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// The cache that the environment names.
    pub fn from_environment() -> Option<Self> {
        let dir = env::var_os(VARIABLE).filter(|dir| !dir.is_empty())?;
        Some(Self(dir.into()))
    }

    /// Copies an object whose record holds, and then the record; false where there is none.
    pub fn fetch(
        &self,
        source: &Path,
        command: &str,
        roots: &Roots,
        object: &Path,
        record: &Path,
    ) -> bool {
        let mut hashes = FileHashes::default();
        let entries = fs::read_dir(self.shelf(source, command, roots));
        let mut paths = entries.into_iter().flatten().flatten().map(|e| e.path());
        let found = paths.find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "unit")
                && record::holds(path, command, roots, &mut hashes)
        });
        found.is_some_and(|found| {
            fs::copy(found.with_extension("o"), object).is_ok() && fs::copy(found, record).is_ok()
        })
    }

    /// Leaves an object and its record for others.
    pub fn store(&self, source: &Path, command: &str, roots: &Roots, object: &Path, record: &Path) {
        let Ok(text) = fs::read(record) else {
            return;
        };
        let shelf = self.shelf(source, command, roots);
        let entry = shelf.join(record::hex_digest(&text));
        // The record last: whoever sees it finds the object.
        let _ = fs::create_dir_all(&shelf)
            .and_then(|()| copy_whole(object, &entry.with_extension("o")))
            .and_then(|()| copy_whole(record, &entry.with_extension("unit")));
    }

    /// Where the objects of one source and one command lie: one for each state of the headers.
    fn shelf(&self, source: &Path, command: &str, roots: &Roots) -> PathBuf {
        let key = format!("{command}\n{}", roots.name(source));
        self.0.join(record::hex_digest(key.as_bytes()))
    }
}

/// Copies so that another process sees all of the file or nothing.
fn copy_whole(from: &Path, to: &Path) -> std::io::Result<()> {
    static COPIES: AtomicUsize = AtomicUsize::new(0);
    let copy = COPIES.fetch_add(1, Ordering::Relaxed);
    let part = to.with_extension(format!("{}-{copy}.part", process::id()));
    fs::copy(from, &part)?;
    fs::rename(part, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source with an object and a record of `command`, all in one folder.
    fn made(dir: &Path) -> (Roots, [PathBuf; 3]) {
        let [source, object, record] = ["a.c", "a.o", "a.unit"].map(|name| dir.join(name));
        fs::write(&source, "int x;").unwrap();
        fs::write(&object, "object").unwrap();
        let mut roots = Roots::default();
        roots.add("root", dir.to_owned());
        let files = [source.clone()];
        record::write(&record, "cc", &files, &roots, &mut FileHashes::default()).unwrap();
        (roots, [source, object, record])
    }

    #[test]
    fn another_checkout_gets_the_object_while_its_files_are_the_same() {
        let (here, there, cache) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let cache = Cache(cache.path().join("objects"));
        let (roots, [source, object, record]) = made(here.path());
        cache.store(&source, "cc", &roots, &object, &record);

        let (roots, [source, object, record]) = made(there.path());
        fs::remove_file(&object).unwrap();
        assert!(!cache.fetch(&source, "cc -O2", &roots, &object, &record));
        assert!(cache.fetch(&source, "cc", &roots, &object, &record));
        assert_eq!(fs::read(&object).unwrap(), b"object");

        fs::write(&source, "int y;").unwrap();
        assert!(!cache.fetch(&source, "cc", &roots, &object, &record));
    }
}
