//! `patches edit`: the pinned tree, our whole files, and one commit per patch.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use patch_series::{OVERLAY_ROOT, Series, Texts, apply_diff, read_text};

use super::{OVERLAY, PRISTINE, stamp};
use crate::{git::Git, pin::Pin};

/// Makes `dir` a git working tree of `pin` with the series in `patches` applied.
pub fn edit(pin: &Pin, patches: &Path, dir: &Path) -> Result<()> {
    let used = dir.exists() && fs::read_dir(dir)?.next().is_some();
    ensure!(
        !used,
        "{} is not empty: choose another folder",
        dir.display()
    );
    let series = Series::read(patches)?;
    copy(&pin.dir, dir)?;
    let git = Git::at(dir);
    git.run(&["init", "--quiet", "--initial-branch", "series"])?;
    git.commit_all(&pin.label())?;
    git.run(&["update-ref", PRISTINE, "HEAD"])?;

    // Only the files that change are held in memory.
    let mut tree = Texts::new();
    for (path, text) in series.overlay() {
        let file = format!("{OVERLAY_ROOT}{path}");
        ensure!(
            !dir.join(&file).exists(),
            "patches/src/{path} would replace ggml's own {file}"
        );
        write(dir, &file, text)?;
    }
    git.commit_all(OVERLAY)?;
    for (entry, diff) in series.patches() {
        for file in files_in(diff) {
            if let Ok(text) = read_text(&dir.join(file)) {
                tree.insert(file.to_owned(), text);
            }
        }
        apply_diff(&entry.name, diff, &mut tree)?;
        for file in files_in(diff) {
            write(dir, file, &tree[file])?;
        }
        git.commit_all(&format!("{}\n\n{}\n", entry.name, entry.fixes))?;
    }
    stamp::write(patches, dir)
}

/// The files that a diff names.
fn files_in(diff: &str) -> impl Iterator<Item = &str> {
    diff.lines()
        .filter_map(|line| line.strip_prefix("+++ b/"))
        .map(str::trim_end)
}

fn write(dir: &Path, file: &str, text: &str) -> Result<()> {
    let path = dir.join(file);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a folder; texts get `\n` line ends, as the build reads them.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else if let Ok(text) = read_text(&source) {
            fs::write(&target, text)?;
        } else {
            fs::write(&target, fs::read(&source)?)?;
        }
    }
    Ok(())
}
