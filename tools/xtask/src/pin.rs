//! The pinned ggml: which package, and where cargo keeps it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use patch_series::{Texts, read_text};
use serde::Deserialize;

/// The root of this checkout.
pub fn checkout() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    // It is tools/xtask.
    xtask.ancestors().nth(2).unwrap_or(xtask).to_owned()
}

/// A ggml source tree and its name.
#[derive(Debug, Clone)]
pub struct Pin {
    /// For instance `llama-cpp-sys-2 0.1.161`.
    pub package: String,
    /// ggml's version.
    pub version: String,
    /// ggml's root.
    pub dir: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    source: Option<String>,
    manifest_path: PathBuf,
}

impl Pin {
    /// The package that the project at `vendor` pins; cargo downloads it where it must, and checks its checksum.
    pub fn resolve(vendor: &Path) -> Result<Self> {
        let output = cargo()
            .args([
                "metadata",
                "--format-version",
                "1",
                "--locked",
                "--manifest-path",
            ])
            .arg(vendor.join("Cargo.toml"))
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!(
                "cargo cannot obtain what {} pins: {}",
                vendor.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let Metadata { packages } =
            serde_json::from_slice(&output.stdout).context("cargo's metadata")?;
        let mut registry = packages
            .into_iter()
            .filter(|package| package.source.is_some());
        let (Some(package), None) = (registry.next(), registry.next()) else {
            bail!("{} must pin exactly one registry package", vendor.display());
        };
        let root = package.manifest_path.parent().unwrap_or(vendor);
        let dir = root.join("llama.cpp/ggml");
        Ok(Self {
            package: format!("{} {}", package.name, package.version),
            version: version_in(&read_text(&dir.join("CMakeLists.txt"))?)
                .with_context(|| format!("no ggml version in {}", dir.display()))?,
            dir,
        })
    }

    /// One line that names the source.
    pub fn label(&self) -> String {
        format!("ggml {} from {}", self.version, self.package)
    }

    /// The texts that a patch can change. What is no UTF-8 is left out.
    pub fn texts(&self) -> Result<Texts> {
        let mut texts = Texts::new();
        for folder in ["include", "src"] {
            add_texts(&self.dir.join(folder), folder, &mut texts)?;
        }
        Ok(texts)
    }
}

fn add_texts(dir: &Path, relative: &str, texts: &mut Texts) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let relative = format!("{relative}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add_texts(&entry.path(), &relative, texts)?;
        } else if let Ok(text) = read_text(&entry.path()) {
            texts.insert(relative, text);
        }
    }
    Ok(())
}

/// ggml's version from its build system.
fn version_in(cmake: &str) -> Option<String> {
    let part = |name: &str| {
        let start = format!("set(GGML_VERSION_{name} ");
        cmake
            .lines()
            .find_map(|line| line.trim().strip_prefix(&start)?.strip_suffix(')'))
    };
    Some([part("MAJOR")?, part("MINOR")?, part("PATCH")?].join("."))
}

/// Cargo, without what the cargo that started us says about itself.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_its_three_parts() {
        let cmake =
            "set(GGML_VERSION_MAJOR 1)\n  set(GGML_VERSION_MINOR 2)\nset(GGML_VERSION_PATCH 3)\n";
        assert_eq!(version_in(cmake).as_deref(), Some("1.2.3"));
        assert_eq!(version_in("set(GGML_VERSION_MAJOR 1)\n"), None);
    }
}
