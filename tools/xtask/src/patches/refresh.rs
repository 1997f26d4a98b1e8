//! `patches refresh`: writes the commits of a working tree back as the series.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use patch_series::OVERLAY_ROOT;

use super::{OVERLAY, PRISTINE, hunks::file_diff, stamp};
use crate::{git::Git, pin::Pin};

/// How to make a commit into a patch.
const NEW_PATCH: &str = "A commit becomes a patch when its subject is the patch's name, NNNN-what-it-does, and \
                         patches/series.toml has an entry of that name at the same position";

/// What happened to a file below `patches/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It has a new text.
    Written(PathBuf),
    /// It is gone.
    Removed(PathBuf),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(path) => write!(f, "wrote {}", path.display()),
            Self::Removed(path) => write!(f, "removed {}", path.display()),
        }
    }
}

/// Writes the diffs and whole files of the working tree `dir` to `patches`; says what changed.
///
/// Nothing is written unless everything in `dir` has a place in the series.
pub fn refresh(pin: &Pin, patches: &Path, dir: &Path) -> Result<Vec<Change>> {
    let git = Git::at(dir);
    let commits = check_repository(pin, &git, dir)?;
    let names = names_in(&fs::read_to_string(patches.join("series.toml"))?)?;
    check_order(&commits, &names)?;
    let foreign = stamp::changed(patches, dir)?;
    ensure!(
        foreign.is_empty(),
        "changed in {} since {} was made from it, so that refreshing would undo it: {}. Make a new folder with \
         `cargo xtask patches edit` and bring your commits over with git cherry-pick",
        patches.display(),
        dir.display(),
        foreign.join(", ")
    );

    let mut files = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.subject != OVERLAY) {
        files.insert(
            PathBuf::from(format!("{}.patch", commit.subject)),
            diff_of(&git, commit)?,
        );
    }
    for path in added_since_pristine(&git, "HEAD")? {
        let text = git.run(&["show", &format!("HEAD:{path}")])?;
        let below = path.strip_prefix(OVERLAY_ROOT).with_context(|| {
            format!(
                "{path}: a new file must lie below {OVERLAY_ROOT}, where patches/src is laid over"
            )
        })?;
        files.insert(Path::new("src").join(below), text);
    }
    let changes = write_back(patches, &files)?;
    stamp::write(patches, dir)?;
    Ok(changes)
}

/// A commit on top of the pristine tree.
#[derive(Debug)]
struct Commit {
    id: String,
    subject: String,
}

/// Refuses a tree that is in the middle of something, and lists its commits, oldest first.
fn check_repository(pin: &Pin, git: &Git, dir: &Path) -> Result<Vec<Commit>> {
    let made_here = git.run(&["rev-parse", "--verify", "--quiet", PRISTINE]);
    let pristine = made_here.with_context(|| {
        format!(
            "{} was not made by `cargo xtask patches edit`",
            dir.display()
        )
    })?;
    let label = git.run(&["log", "-1", "--format=%s", PRISTINE])?;
    ensure!(
        label.trim() == pin.label(),
        "{} holds {}, but the pin is {}: make a new folder with `cargo xtask patches edit` and bring your commits over \
         with git cherry-pick",
        dir.display(),
        label.trim(),
        pin.label()
    );
    for state in [
        "rebase-merge",
        "rebase-apply",
        "MERGE_HEAD",
        "CHERRY_PICK_HEAD",
    ] {
        ensure!(
            !dir.join(".git").join(state).exists(),
            "git is in the middle of something in {} ({state}): finish or abort it first",
            dir.display()
        );
    }
    let uncommitted = git.run(&["status", "--porcelain", "--untracked-files=all"])?;
    ensure!(
        uncommitted.is_empty(),
        "not committed, so it would be lost:\n{uncommitted}Commit it, or amend the patch that it belongs to \
         (git commit --fixup=COMMIT, then git rebase --interactive --autosquash {PRISTINE})"
    );
    let root = git.run(&["merge-base", PRISTINE, "HEAD"])?;
    ensure!(
        root == pristine,
        "HEAD is not built on the pristine tree {PRISTINE}"
    );
    let merges = git.run(&["rev-list", "--merges", &format!("{PRISTINE}..HEAD")])?;
    ensure!(
        merges.is_empty(),
        "a series has no merges: rebase them away"
    );

    let range = format!("{PRISTINE}..HEAD");
    let log = git.run(&["log", "--reverse", "--format=%H %s", &range])?;
    let commit = |line: &str| {
        let (id, subject) = line.split_once(' ')?;
        Some(Commit {
            id: id.to_owned(),
            subject: subject.trim().to_owned(),
        })
    };
    Ok(log.lines().filter_map(commit).collect())
}

/// The names in `series.toml`, in order.
fn names_in(series: &str) -> Result<Vec<String>> {
    let table: toml::Table = series.parse().context("patches/series.toml")?;
    let Some(patches) = table.get("patch").and_then(toml::Value::as_array) else {
        return Ok(Vec::new());
    };
    let name = |patch: &toml::Value| Some(patch.get("name")?.as_str()?.to_owned());
    patches
        .iter()
        .map(|patch| name(patch).context("an entry of patches/series.toml has no name"))
        .collect()
}

/// Each commit is one patch of the series, in its order, or the overlay.
fn check_order(commits: &[Commit], names: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for Commit { id, subject } in commits {
        ensure!(
            subject == OVERLAY || names.contains(subject),
            "commit {} {subject:?} matches no patch. {NEW_PATCH}; a correction is squashed into its patch \
             (git rebase --interactive --autosquash {PRISTINE})",
            &id[..id.len().min(9)]
        );
        ensure!(
            seen.insert(subject),
            "two commits are called {subject:?}: squash them (git rebase --interactive {PRISTINE})"
        );
    }
    let patches: Vec<_> = commits
        .iter()
        .map(|commit| &commit.subject)
        .filter(|subject| *subject != OVERLAY)
        .collect();
    if let Some(lost) = names.iter().find(|name| !patches.contains(name)) {
        bail!(
            "patches/series.toml lists {lost}, but no commit is called so. To drop a patch, take its entry out of \
             series.toml and delete its file; to keep it, bring the commit back"
        );
    }
    ensure!(
        patches == names.iter().collect::<Vec<_>>(),
        "the commits are in another order than patches/series.toml: {patches:?}"
    );
    Ok(())
}

/// The diff of one commit, without the files that are wholly ours.
fn diff_of(git: &Git, commit: &Commit) -> Result<String> {
    let parent = format!("{}^", commit.id);
    let changed = git.run(&["diff", "--name-only", "--no-renames", &parent, &commit.id])?;
    let ours: BTreeSet<_> = added_since_pristine(git, &commit.id)?
        .union(&added_since_pristine(git, &parent)?)
        .cloned()
        .collect();
    let mut diff = String::new();
    for file in changed.lines().filter(|file| !ours.contains(*file)) {
        let show = |commit: &str| git.run(&["show", &format!("{commit}:{file}")]);
        let new = show(&commit.id).with_context(|| {
            format!(
                "{} deletes ggml's {file}: a patch can only change files",
                commit.subject
            )
        })?;
        let zero = git.run(&[
            "diff",
            "-U0",
            "--no-color",
            "--no-ext-diff",
            "--inter-hunk-context=0",
            "--diff-algorithm=myers",
            &parent,
            &commit.id,
            "--",
            file,
        ])?;
        diff.push_str(&file_diff(file, &show(&parent)?, &new, &zero)?);
    }
    ensure!(
        !diff.is_empty(),
        "{} changes none of ggml's files: take it out of series.toml, and delete its file",
        commit.subject
    );
    Ok(diff)
}

/// Files that the pristine tree does not have: the overlay's, whichever commit brought them.
fn added_since_pristine(git: &Git, commit: &str) -> Result<BTreeSet<String>> {
    let list = git.run(&[
        "diff",
        "--name-only",
        "--no-renames",
        "--diff-filter=A",
        PRISTINE,
        commit,
    ])?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Makes the diffs and whole files below `patches` exactly `files`, touching only what differs.
fn write_back(patches: &Path, files: &BTreeMap<PathBuf, String>) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (relative, text) in files {
        let path = patches.join(relative);
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        changes.push(Change::Written(relative.clone()));
    }
    for path in patch_series::read_folder(&patches.join("src"))?.keys() {
        let relative = Path::new("src").join(path);
        if !files.contains_key(&relative) {
            fs::remove_file(patches.join(&relative))?;
            changes.push(Change::Removed(relative));
        }
    }
    Ok(changes)
}
