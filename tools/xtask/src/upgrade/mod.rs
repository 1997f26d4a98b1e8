//! `cargo xtask upgrade`: tries the series on another version of the pinned package, and says what people must look at.

mod reading;
mod vendor;

use std::{fs, path::Path};

use anyhow::{Context, Result};
use patch_series::{FailedHunk, Series, failed_hunks};

pub use self::reading::{Reading, compare};
use crate::pin::Pin;

/// What an upgrade would meet.
#[derive(Debug)]
pub struct Outcome {
    /// The pin as it is.
    pub old: Pin,
    /// The pin as it was asked for.
    pub new: Pin,
    /// Hunks that find no place, by patch.
    pub failed: Vec<(String, Vec<FailedHunk>)>,
    /// What upstream changed where it concerns us.
    pub reading: Vec<Reading>,
    /// Whether vendor/ has been changed.
    pub written: bool,
}

impl Outcome {
    /// Whether every hunk fits.
    pub fn applies(&self) -> bool {
        self.failed.is_empty()
    }

    /// Whether old and new are the same.
    pub fn is_same(&self) -> bool {
        self.old.package == self.new.package
    }
}

/// Tries `version` of the package that `checkout/vendor` pins. Unless it is a dry run, vendor/ then pins it, also when hunks
/// fail: their refresh needs the new source.
///
/// # Errors
/// No such version, a package without ggml, or a dependency of it that has no stub: nothing is changed then.
pub fn upgrade(checkout: &Path, version: &str, dry_run: bool) -> Result<Outcome> {
    let vendor = checkout.join("vendor");
    let scratch = tempfile::tempdir()?;
    let trial = scratch.path().join("vendor");
    vendor::copy(&vendor, &trial)?;
    let old = Pin::resolve(&trial)?;
    vendor::set_version(&trial, version)?;
    let new = Pin::resolve(&trial)?;

    let series = Series::read(&checkout.join("patches"))?;
    let (before, mut after) = (old.texts()?, new.texts()?);
    let reading = compare(&before, &after, &series);
    let mut failed = Vec::new();
    series.lay_over(&mut after)?;
    for (entry, diff) in series.patches() {
        let hunks = failed_hunks(&entry.name, diff, &mut after)?;
        if !hunks.is_empty() {
            failed.push((entry.name.clone(), hunks));
        }
    }
    let written = !dry_run && old.package != new.package;
    if written {
        for file in ["Cargo.toml", "Cargo.lock"] {
            let text = fs::read(trial.join(file))?;
            fs::write(vendor.join(file), text)
                .with_context(|| format!("cannot write vendor/{file}"))?;
        }
    }
    Ok(Outcome {
        old,
        new,
        failed,
        reading,
        written,
    })
}
