//! The few things that are asked of git.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// A repository with a working tree.
#[derive(Debug, Clone)]
pub struct Git {
    dir: PathBuf,
}

impl Git {
    /// The repository at `dir`.
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Runs git and returns what it printed.
    pub fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<String> {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&self.dir)
            // What the maintainer has set up for other repositories must change neither files nor diffs here.
            .args(["-c", "core.autocrlf=false", "-c", "core.quotePath=false"])
            .args(["-c", "commit.gpgSign=false", "-c", "diff.noprefix=false"])
            // These have a default path in the user's home, whatever the configuration.
            .args(["-c", "core.attributesFile=/dev/null"])
            .args(["-c", "core.excludesFile=/dev/null"])
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        // A hook's or a worktree's variables would point git elsewhere, and others hold settings.
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_CONFIG_COUNT",
            "GIT_CONFIG_PARAMETERS",
        ] {
            command.env_remove(name);
        }
        let output = command.output().context(
            "cannot run git, which holds the patches as commits: install it (Debian: apt-get install git; macOS: \
             xcode-select --install) and see that it is on PATH",
        )?;
        if !output.status.success() {
            let words: Vec<_> = args
                .iter()
                .map(|arg| arg.as_ref().to_string_lossy())
                .collect();
            bail!(
                "git {} in {}: {}",
                words.join(" "),
                self.dir.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Commits everything, as an author that needs no setup: the commits never leave this working tree.
    pub fn commit_all(&self, message: &str) -> Result<()> {
        self.run(&["add", "--all", "--force"])?;
        self.run(&[
            "-c",
            "user.name=cargo xtask",
            "-c",
            "user.email=xtask@localhost",
            "commit",
            "--quiet",
            "--no-verify",
            "--allow-empty",
            "--message",
            message,
        ])?;
        Ok(())
    }
}
