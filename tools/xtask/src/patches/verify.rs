//! `patches verify`: is the series whole, reversible, proven, and written as a refresh would write it?

use std::{fs, path::Path};

use anyhow::{Context, Result};
use patch_series::{Series, Texts};

use super::{edit, proofs, refresh};
use crate::{findings, pin::Pin};

/// What was checked and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Lines that say what holds.
    pub holds: Vec<String>,
    /// Lines that say what does not.
    pub wrong: Vec<String>,
}

/// Checks `patches` against `pin`, and its proofs against `checkout`.
///
/// # Errors
/// When the checks cannot be made; what they find is in the report.
pub fn verify(pin: &Pin, patches: &Path, checkout: &Path) -> Result<Report> {
    let mut report = Report::default();
    // Reading checks that every patch has an entry with all fields, and every entry a patch.
    let series = match Series::read(patches) {
        Ok(series) => series,
        Err(error) => {
            report.wrong.push(error.to_string());
            return Ok(report);
        }
    };
    let count = series.patches().len();
    report.holds.push(format!(
        "{count} patches, each with an entry in series.toml"
    ));
    check_fields(&series, checkout, &mut report);

    let pristine = pin.texts()?;
    match round_trip(&series, &pristine) {
        Ok(files) => report.holds.push(format!(
            "they apply to {} and come off again, {files} files",
            pin.label()
        )),
        Err(error) => {
            report.wrong.push(format!("{error:#}"));
            return Ok(report);
        }
    }
    let different = refreshed(pin, patches)?;
    if different.is_empty() {
        report.holds.push("a refresh changes nothing".to_owned());
    } else {
        report.wrong.push(format!(
            "not as `cargo xtask patches refresh` writes it: {}",
            different.join(", ")
        ));
    }
    Ok(report)
}

fn check_fields(series: &Series, checkout: &Path, report: &mut Report) {
    let mut proofs = 0;
    for (entry, _) in series.patches() {
        for (field, text) in [
            ("fixes", &entry.fixes),
            ("upstream", &entry.upstream),
            ("drop_when", &entry.drop_when),
        ] {
            if text.trim().is_empty() {
                report
                    .wrong
                    .push(format!("{}: {field} is empty", entry.name));
            }
        }
        if entry.proof.is_empty() {
            report
                .wrong
                .push(format!("{}: no proof is named", entry.name));
        }
        for proof in &entry.proof {
            match proofs::check(checkout, proof) {
                Ok(()) => proofs += 1,
                Err(error) => report
                    .wrong
                    .push(format!("{}: proof {proof:?}: {error:#}", entry.name)),
            }
        }
    }
    report.holds.push(format!("{proofs} proofs exist"));

    let entries: Vec<_> = series
        .patches()
        .iter()
        .map(|(entry, _)| entry.clone())
        .collect();
    let wrong = findings::wrong(&entries);
    if wrong.is_empty() {
        let count: usize = entries.iter().map(|entry| entry.findings.len()).sum();
        report.holds.push(format!("{count} findings are whole"));
    }
    report.wrong.extend(wrong);
}

/// Applies and takes off again; returns how many files differ in between.
fn round_trip(series: &Series, pristine: &Texts) -> Result<usize> {
    let mut tree = pristine.clone();
    series.apply(&mut tree)?;
    let changed = tree
        .iter()
        .filter(|(path, text)| pristine.get(*path) != Some(text))
        .count();
    series
        .reverse(&mut tree)
        .context("taking the series off again")?;
    let left = tree
        .iter()
        .find(|(path, text)| pristine.get(*path) != Some(text));
    match left {
        Some((path, _)) => {
            anyhow::bail!("{path} is not as it was after the series is taken off again")
        }
        None => anyhow::ensure!(
            tree.len() == pristine.len(),
            "files are missing after the series is taken off again"
        ),
    }
    Ok(changed)
}

/// What a refresh of an unchanged tree changes: nothing, if the series is as it should be.
fn refreshed(pin: &Pin, patches: &Path) -> Result<Vec<String>> {
    let scratch = tempfile::tempdir()?;
    let copy = scratch.path().join("patches");
    for (path, text) in patch_series::read_folder(patches)? {
        let path = copy.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&copy))?;
        fs::write(path, text)?;
    }
    let tree = scratch.path().join("ggml");
    edit(pin, &copy, &tree)?;
    let changes = refresh(pin, &copy, &tree)?;
    Ok(changes.iter().map(ToString::to_string).collect())
}
