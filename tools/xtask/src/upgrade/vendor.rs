//! The pin's files: a copy to try on, and the version in it.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use crate::pin::cargo;

/// Copies the pin with its stubs.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                copy(&entry.path(), &target)?;
            }
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Pins `version` in the copy `vendor` and lets cargo resolve it, which records the checksum.
pub fn set_version(vendor: &Path, version: &str) -> Result<()> {
    let manifest = vendor.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    let new = replaced(&text, version)
        .with_context(|| format!("no `version = \"=...\"` in {}", manifest.display()))?;
    if new == text {
        return Ok(());
    }
    fs::write(&manifest, new)?;
    let output = cargo()
        .args(["generate-lockfile", "--manifest-path"])
        .arg(&manifest)
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cargo finds no such version: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let lock: toml::Table = fs::read_to_string(vendor.join("Cargo.lock"))?.parse()?;
    let fetched = from_registry(&lock);
    ensure!(
        fetched.len() == 1,
        "{version} has dependencies without a stub: of {fetched:?} only the package itself may come from the registry. Add \
         vendor/stubs/NAME and a line to [patch.crates-io] for each, or raise a stub's version to what it asks for"
    );
    Ok(())
}

/// The manifest with another exact version; `None` where it has none.
fn replaced(manifest: &str, version: &str) -> Option<String> {
    const START: &str = "version = \"=";
    let start = manifest.find(START)? + START.len();
    let end = start + manifest[start..].find('"')?;
    Some(format!(
        "{}{version}{}",
        &manifest[..start],
        &manifest[end..]
    ))
}

/// Packages of a lock file that are downloaded.
fn from_registry(lock: &toml::Table) -> Vec<String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    packages
        .into_iter()
        .flatten()
        .filter(|package| package.get("source").is_some())
        .filter_map(|package| Some(package.get("name")?.as_str()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_version_is_replaced() {
        let manifest =
            "version = \"0.0.0\"\np = { version = \"=1.2.3\", default-features = false }\n";
        assert_eq!(
            replaced(manifest, "4.5.6").unwrap(),
            "version = \"0.0.0\"\np = { version = \"=4.5.6\", default-features = false }\n"
        );
        assert_eq!(replaced("version = \"1\"", "2"), None);
    }

    #[test]
    fn packages_from_the_registry_are_counted() {
        let lock = "[[package]]\nname = \"a\"\nsource = \"registry\"\n[[package]]\nname = \"b\"\n";
        assert_eq!(from_registry(&lock.parse().unwrap()), ["a"]);
    }
}
