//! A project outside the checkout that depends on ours, and how it is built.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};

/// The checkout that is tested.
pub fn checkout() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// All consumers build here: what they have in common is compiled once.
pub fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("consumers")
}

/// Cargo in `dir`, as a user outside this workspace would run it.
pub fn cargo(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let ours = name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST");
        if ours || ["CARGO", "GGML_SRC_DIR", "DOCS_RS", "RUSTFLAGS"].contains(&&*name) {
            command.env_remove(&*name);
        }
    }
    command
        .env("CARGO_TARGET_DIR", target_dir())
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_INCREMENTAL", "0");
    command
}

/// Runs to a successful end; an error holds all that was printed.
pub fn succeed(command: &mut Command) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    ensure!(
        status.success(),
        "{command:?}: {status}\n{stdout}\n{}",
        String::from_utf8_lossy(&stderr)
    );
    Ok(stdout)
}

/// Writes a file, with its folders.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A project in a temporary folder.
pub struct Project {
    dir: tempfile::TempDir,
    /// Settings of cargo's that all its runs need.
    pub settings: Vec<(&'static str, PathBuf)>,
}

impl Project {
    /// A binary called `name`; `dependencies` is what follows `[dependencies]`.
    pub fn new(name: &str, dependencies: &str, main: &str) -> Result<Self> {
        let project = Self {
            dir: tempfile::tempdir()?,
            settings: Vec::new(),
        };
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n\
             [dependencies]\n{dependencies}"
        );
        write(&project.path("Cargo.toml"), &manifest)?;
        write(&project.path("src/main.rs"), main)?;
        // The versions that we test with; cargo adapts the rest.
        fs::copy(checkout().join("Cargo.lock"), project.path("Cargo.lock"))?;
        Ok(project)
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command = cargo(self.dir.path(), args);
        for (name, value) in &self.settings {
            command.env(name, value);
        }
        command
    }

    /// Builds and runs the project; returns what it printed.
    pub fn run(&self, flags: &[&str]) -> Result<String> {
        self.seed(flags)?;
        succeed(&mut self.cargo(&[&["run", "--quiet"], flags].concat()))
    }

    /// Lets ggml-sys's build script find objects that an earlier consumer compiled.
    ///
    /// Its folder has a name that only cargo knows, so the build is started without a source of ggml first, which fails
    /// as soon as the folder is there. The build script compares the content of every file that went into an object, and
    /// compiles again whatever is not the same.
    fn seed(&self, flags: &[&str]) -> Result<()> {
        let donor = donors()?
            .into_iter()
            .find(|out| out.join("libggmlrs.a").is_file());
        let Some(donor) = donor else { return Ok(()) };
        let before = donors()?;
        let mut command = self.cargo(&[&["build", "--quiet"], flags].concat());
        let failed = command.env("GGML_SRC_DIR", self.path("nothing")).output()?;
        ensure!(
            !failed.status.success(),
            "a build without a source of ggml succeeded"
        );
        for out in donors()?.difference(&before) {
            copy(&donor.join("objects"), &out.join("objects"))?;
        }
        Ok(())
    }
}

/// The folders in which ggml-sys's build script has worked.
fn donors() -> Result<BTreeSet<PathBuf>> {
    let build = target_dir().join("debug/build");
    let Ok(entries) = fs::read_dir(&build) else {
        return Ok(BTreeSet::new());
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        let out = entry?.path().join("out");
        let of_ggml = out
            .parent()
            .and_then(Path::file_name)
            .and_then(OsStr::to_str);
        if of_ggml.is_some_and(|name| name.starts_with("ggml-sys-")) && out.is_dir() {
            found.insert(out);
        }
    }
    Ok(found)
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
