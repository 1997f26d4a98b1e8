//! Files that are whole or not there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces the file at `path` by what `fill` writes, in one go: whenever the process or the machine ends, `path` holds all of the old
/// bytes or all of the new.
///
/// The bytes go to a file beside it, which takes its name once they are on the disk. A process that is killed meanwhile leaves
/// that file, `.NAME.PROCESS-NUMBER.partial`, behind. Where `path` is a link, all this is done to the file that it leads to.
///
/// # Errors
/// Of the system, and whatever `fill` returns. The file at `path` is as it was then.
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let path = &behind_links(path);
    let partial = Partial::create(path)?;
    let mut writer = BufWriter::new(partial.file.try_clone()?);
    fill(&mut writer)?;
    writer.flush()?;
    partial.file.sync_all()?;
    partial.rename(path)
}

/// Whether [`write`] could begin.
///
/// # Errors
/// Of the system.
pub(super) fn check(path: &Path) -> io::Result<()> {
    Partial::create(&behind_links(path)).map(drop)
}

/// A rename would put a file in the place of a link, and leave what the link leads to as it was.
fn behind_links(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A file that goes away unless it is given its name.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn create(path: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let refuse = |detail| Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
        let Some(name) = path.file_name() else {
            return refuse("not the name of a file");
        };
        // A rename would put a file in the place of a device or a pipe.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return refuse("not a regular file");
        }
        // Two that write the same checkpoint at once must not write into each other's file.
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let mut partial = OsString::from(".");
            partial.push(name);
            partial.push(format!(".{}-{number}.partial", process::id()));
            let path = path.with_file_name(partial);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                // Of an earlier process of this number, or of one in another container, which writes it still.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => return Ok(Self { path, file: file? }),
            }
        }
    }

    fn rename(self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        sync_folder_of(to)
    }
}

impl Drop for Partial {
    /// After a rename there is nothing of this name.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A rename is on the disk once the folder is.
#[cfg(unix)]
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Other systems do not open folders; theirs is a journal of names.
#[cfg(not(unix))]
fn sync_folder_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let save = |bytes: &[u8], then: io::Result<()>| {
            write(&path, |writer| {
                writer.write_all(bytes)?;
                then
            })
        };
        save(b"first", Ok(())).unwrap();
        save(b"second", Err(io::Error::other("no"))).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        save(b"third", Ok(())).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    /// Of an earlier process of this number, or of one in another container that shares the folder.
    #[test]
    fn a_partial_file_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = Partial::create(&path).unwrap();
        let name = first.path.to_str().unwrap();
        let (start, number) = name
            .strip_suffix(".partial")
            .unwrap()
            .rsplit_once('-')
            .unwrap();
        let number: u64 = number.parse().unwrap();
        let others: Vec<_> = (number + 1..number + 100)
            .map(|number| PathBuf::from(format!("{start}-{number}.partial")))
            .collect();
        for other in &others {
            fs::write(other, b"other").unwrap();
        }
        write(&path, |writer| writer.write_all(b"ours")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        for other in &others {
            assert_eq!(fs::read(other).unwrap(), b"other");
        }
    }

    #[test]
    fn a_folder_has_no_name_to_write_to() {
        let write = |path: &str| write(Path::new(path), |_| Ok(()));
        assert!(write("..").is_err());
        assert!(write("there/is/no/such/folder").is_err());
    }
}
