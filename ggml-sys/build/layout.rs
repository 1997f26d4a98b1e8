//! Where this crate's own inputs lie: beside it in a checkout, inside it in a published package.

use std::path::{Path, PathBuf};

/// The pin's two files and the patch folder.
#[derive(Debug, Clone)]
pub struct Layout {
    pub pin_manifest: PathBuf,
    pub pin_lock: PathBuf,
    pub patches: PathBuf,
}

impl Layout {
    /// `cargo package` turns the symbolic links `pin/` and `patches` into copies. A checkout's own files come first,
    /// because a checkout on Windows may hold text files in place of the links.
    pub fn find(manifest_dir: &Path) -> Self {
        match manifest_dir.parent() {
            Some(checkout)
                if checkout.join("vendor/Cargo.lock").is_file()
                    && checkout.join("patches").is_dir() =>
            {
                Self {
                    pin_manifest: checkout.join("vendor/Cargo.toml"),
                    pin_lock: checkout.join("vendor/Cargo.lock"),
                    patches: checkout.join("patches"),
                }
            }
            _ => Self {
                pin_manifest: manifest_dir.join("pin/manifest.toml"),
                pin_lock: manifest_dir.join("pin/lock.toml"),
                patches: manifest_dir.join("patches"),
            },
        }
    }

    /// The files and folders that cargo must watch.
    pub fn watch(&self) {
        for path in [&self.pin_manifest, &self.pin_lock, &self.patches] {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_checkout_wins_over_the_copies_in_the_package() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("ggml-sys");
        fs::create_dir_all(&package).unwrap();
        assert_eq!(Layout::find(&package).patches, package.join("patches"));

        fs::create_dir_all(dir.path().join("vendor")).unwrap();
        fs::create_dir_all(dir.path().join("patches")).unwrap();
        fs::write(dir.path().join("vendor/Cargo.lock"), "").unwrap();
        assert_eq!(Layout::find(&package).patches, dir.path().join("patches"));
    }
}
