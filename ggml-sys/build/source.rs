//! Where ggml's sources come from: the package that `vendor/` pins, obtained by cargo, or `GGML_SRC_DIR`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{
    env as build_env,
    error::Error,
    layout::Layout,
    tree::{read_text, write_if_changed},
};

const STEP: &str = "source";

/// Overrides the pinned package.
const OVERRIDE: &str = "GGML_SRC_DIR";

/// Features of the pin's stubs that the pinned package asks for.
const STUB_FEATURES: [(&str, &str); 1] = [("cc", "parallel")];

/// A ggml source tree that has not been touched yet.
#[derive(Debug)]
pub struct Source {
    /// The folder with `include/` and `src/`.
    pub dir: PathBuf,
    /// Where it comes from, for `ggml_commit()`: the package and its version, or `GGML_SRC_DIR`.
    pub origin: String,
}

impl Source {
    /// Finds the source, downloading the pinned package if cargo does not have it yet.
    pub fn obtain(layout: &Layout, manifest_dir: &Path, out_dir: &Path) -> Result<Self, Error> {
        if let Some(dir) = build_env::watched(OVERRIDE) {
            return Self::from_override(Path::new(&dir));
        }
        let pin = Pin::read(layout)?;
        let project = out_dir.join("fetch");
        pin.write_project(&project)?;
        let metadata = cargo_metadata(&pin, &project, manifest_dir)?;
        Ok(Self {
            dir: pin.find_in(&metadata)?,
            origin: pin.label(),
        })
    }

    fn from_override(dir: &Path) -> Result<Self, Error> {
        let ggml = ggml_below(dir).ok_or_else(|| Error::SourceDir {
            dir: dir.to_owned(),
        })?;
        for part in ["include", "src", "CMakeLists.txt"] {
            println!("cargo::rerun-if-changed={}", ggml.join(part).display());
        }
        Ok(Self {
            dir: ggml,
            origin: OVERRIDE.to_owned(),
        })
    }

    /// The version that ggml's own build system declares.
    pub fn version(&self) -> Result<String, Error> {
        let file = self.dir.join("CMakeLists.txt");
        let text = read_text(&file)?;
        version_in(&text).ok_or(Error::Version {
            file,
            reason: "GGML_VERSION_MAJOR, _MINOR and _PATCH are not all set",
        })
    }
}

/// ggml's root in a ggml checkout, a project that bundles it, or the pinned package.
fn ggml_below(dir: &Path) -> Option<PathBuf> {
    ["", "ggml", "llama.cpp/ggml"]
        .iter()
        .map(|sub| dir.join(sub))
        .find(|ggml| ggml.join("include/ggml.h").is_file())
}

fn version_in(cmake: &str) -> Option<String> {
    let part = |name: &str| {
        let start = format!("set(GGML_VERSION_{name} ");
        cmake
            .lines()
            .find_map(|line| line.trim().strip_prefix(&start)?.strip_suffix(')'))
    };
    Some(format!(
        "{}.{}.{}",
        part("MAJOR")?,
        part("MINOR")?,
        part("PATCH")?
    ))
}

/// The pin's two files and what they say.
#[derive(Debug)]
struct Pin {
    manifest: String,
    lock: String,
    lock_path: PathBuf,
    packages: Vec<LockedPackage>,
}

#[derive(Debug, Clone, serde::Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    /// Present for what comes from a registry: that is the pinned package alone.
    source: Option<String>,
}

#[derive(serde::Deserialize)]
struct LockFile {
    package: Vec<LockedPackage>,
}

#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(serde::Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
}

impl Pin {
    fn read(layout: &Layout) -> Result<Self, Error> {
        let manifest = read_text(&layout.pin_manifest)?;
        let lock = read_text(&layout.pin_lock)?;
        let unusable = |reason| Error::Pin {
            file: layout.pin_lock.clone(),
            reason,
        };
        let LockFile { package: packages } =
            toml::from_str(&lock).map_err(|error| unusable(error.to_string()))?;
        match packages
            .iter()
            .filter(|package| package.source.is_some())
            .count()
        {
            1 => Ok(Self {
                manifest,
                lock,
                lock_path: layout.pin_lock.clone(),
                packages,
            }),
            n => Err(unusable(format!(
                "{n} packages come from a registry, where there must be one"
            ))),
        }
    }

    /// The one package that is downloaded.
    fn pinned(&self) -> Option<&LockedPackage> {
        self.packages
            .iter()
            .find(|package| package.source.is_some())
    }

    fn label(&self) -> String {
        self.pinned().map_or_else(String::new, |package| {
            format!("{} {}", package.name, package.version)
        })
    }

    /// Writes the pin as a project that cargo can resolve: the manifest, the lock file and the stubs, whose names and
    /// versions the lock file holds.
    fn write_project(&self, dir: &Path) -> Result<(), Error> {
        write_if_changed(&dir.join("Cargo.toml"), &self.manifest)?;
        write_if_changed(&dir.join("Cargo.lock"), &self.lock)?;
        write_if_changed(&dir.join("empty.rs"), "")?;
        let stubs = self
            .packages
            .iter()
            .filter(|package| package.source.is_none() && package.name != "ggml-upstream");
        for stub in stubs {
            write_if_changed(
                &dir.join("stubs").join(&stub.name).join("Cargo.toml"),
                &stub_manifest(stub),
            )?;
        }
        Ok(())
    }

    /// ggml's root inside the package's folder, which cargo's metadata names.
    fn find_in(&self, metadata: &[u8]) -> Result<PathBuf, Error> {
        let unusable = |reason| Error::Pin {
            file: self.lock_path.clone(),
            reason,
        };
        let Metadata { packages } = serde_json::from_slice(metadata)
            .map_err(|error| unusable(format!("cargo metadata: {error}")))?;
        let name = self.pinned().map_or("", |package| package.name.as_str());
        packages
            .iter()
            .find(|package| package.name == name)
            .and_then(|package| ggml_below(package.manifest_path.parent()?))
            .ok_or_else(|| unusable(format!("{} holds no ggml/include/ggml.h", self.label())))
    }
}

fn stub_manifest(stub: &LockedPackage) -> String {
    let LockedPackage { name, version, .. } = stub;
    let mut manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"{version}\"\nedition = \"2021\"\npublish = false\n\n\
         [lib]\npath = \"../../empty.rs\"\n"
    );
    if let Some((_, feature)) = STUB_FEATURES.iter().find(|(stub, _)| stub == name) {
        manifest.push_str(&format!("\n[features]\n{feature} = []\n"));
    }
    manifest
}

/// Asks cargo where the pinned package lies.
///
/// Cargo does not tell build scripts that it was called with `--offline`, so what is on disk is tried first: from
/// `project`, and from `manifest_dir`, below which a consumer's `.cargo/config.toml` may redirect to vendored sources.
/// Only then may cargo use the network.
fn cargo_metadata(pin: &Pin, project: &Path, manifest_dir: &Path) -> Result<Vec<u8>, Error> {
    for dir in [project, manifest_dir] {
        let output = run_cargo(project, dir, true)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
    }
    let output = run_cargo(project, project, false)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(explain(
        pin.label(),
        &String::from_utf8_lossy(&output.stderr),
    ))
}

fn run_cargo(project: &Path, current_dir: &Path, offline: bool) -> Result<Output, Error> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--manifest-path",
        ])
        .arg(project.join("Cargo.toml"))
        .current_dir(current_dir);
    if offline {
        command.arg("--offline");
    }
    // What the outer cargo says about this build would mislead the inner one.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_outer_build) {
            command.env_remove(&name);
        }
    }
    command.output().map_err(Error::io(STEP, "run", cargo))
}

fn belongs_to_outer_build(variable: &str) -> bool {
    const PREFIXES: [&str; 3] = ["CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_"];
    const NAMES: [&str; 4] = [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_MAKEFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
    ];
    PREFIXES.iter().any(|prefix| variable.starts_with(prefix)) || NAMES.contains(&variable)
}

/// Turns cargo's refusal into one line with the remedy.
fn explain(package: String, stderr: &str) -> Error {
    let message = stderr
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" / ");
    if stderr.contains("checksum") {
        Error::Checksum { package, message }
    } else {
        Error::Fetch { package, message }
    }
}

/// Writes `ggml-version.h`, which ggml's own build system makes from a template.
pub fn write_version_header(
    template: &str,
    version: &str,
    origin: &str,
    dir: &Path,
) -> Result<(), Error> {
    let text = template
        .replace("@GGML_VERSION@", version)
        .replace("@GGML_BUILD_COMMIT@", origin);
    fs::create_dir_all(dir).map_err(Error::io(STEP, "create", dir))?;
    write_if_changed(&dir.join("ggml-version.h"), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::find(Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    #[test]
    fn the_project_written_for_cargo_is_the_one_in_vendor() {
        let layout = layout();
        let dir = tempfile::tempdir().unwrap();
        Pin::read(&layout)
            .unwrap()
            .write_project(dir.path())
            .unwrap();
        let vendor = layout.pin_manifest.parent().unwrap();
        for stub in fs::read_dir(vendor.join("stubs")).unwrap() {
            let name = stub.unwrap().file_name();
            let manifest = Path::new("stubs").join(&name).join("Cargo.toml");
            assert_eq!(
                read_text(&dir.path().join(&manifest)).unwrap(),
                read_text(&vendor.join(&manifest)).unwrap(),
                "{}",
                manifest.display()
            );
        }
        assert_eq!(
            read_text(&dir.path().join("Cargo.lock")).unwrap(),
            read_text(&layout.pin_lock).unwrap()
        );
    }

    #[test]
    fn the_pinned_package_is_obtained_and_holds_ggml() {
        let dir = tempfile::tempdir().unwrap();
        let source =
            Source::obtain(&layout(), Path::new(env!("CARGO_MANIFEST_DIR")), dir.path()).unwrap();
        assert_eq!(source.version().unwrap(), "0.26.0");
        assert_eq!(source.origin, "llama-cpp-sys-2 0.1.161");
    }

    #[test]
    fn an_override_is_found_in_each_layout_and_refused_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::from_override(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("GGML_SRC_DIR=") && error.contains("include/ggml.h"),
            "{error}"
        );
        for sub in ["llama.cpp/ggml", "ggml", "."] {
            write_if_changed(&dir.path().join(sub).join("include/ggml.h"), "").unwrap();
            assert!(
                Source::from_override(dir.path())
                    .unwrap()
                    .dir
                    .ends_with(sub.trim_start_matches('.'))
            );
        }
    }

    #[test]
    fn a_tree_without_a_version_is_refused_by_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("CMakeLists.txt"),
            "set(GGML_VERSION_MAJOR 0)\n",
        )
        .unwrap();
        let source = Source {
            dir: dir.path().to_owned(),
            origin: String::new(),
        };
        assert!(
            source
                .version()
                .unwrap_err()
                .to_string()
                .contains("CMakeLists.txt")
        );
    }

    #[test]
    fn cargo_s_refusals_get_a_remedy_each() {
        let checksum = explain(
            "p 1".into(),
            "error: failed to verify the checksum of `p v1`\n",
        )
        .to_string();
        assert!(
            checksum.contains("vendor/Cargo.lock") && checksum.contains("failed to verify"),
            "{checksum}"
        );
        let network = explain(
            "p 1".into(),
            "error: failed to download\n\nCaused by:\n  no route\n",
        )
        .to_string();
        assert!(
            network.contains("GGML_SRC_DIR") && network.contains("Caused by: / no route"),
            "{network}"
        );
        assert!(!network.contains('\n'));
    }

    #[test]
    fn a_wrong_checksum_is_refused_by_cargo_and_reported_as_such() {
        let mut layout = layout();
        let lock = read_text(&layout.pin_lock).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (before, after) = lock.split_once("checksum = \"").unwrap();
        layout.pin_lock = dir.path().join("lock.toml");
        fs::write(
            &layout.pin_lock,
            format!("{before}checksum = \"{}{}", "0".repeat(64), &after[64..]),
        )
        .unwrap();
        let error =
            Source::obtain(&layout, Path::new(env!("CARGO_MANIFEST_DIR")), dir.path()).unwrap_err();
        assert!(matches!(error, Error::Checksum { .. }), "{error}");
    }

    #[test]
    fn variables_of_the_outer_build_are_withheld() {
        assert!(belongs_to_outer_build("CARGO_FEATURE_METAL"));
        assert!(belongs_to_outer_build("RUSTC_WRAPPER"));
        assert!(!belongs_to_outer_build("CARGO_HOME"));
        assert!(!belongs_to_outer_build("CARGO_NET_OFFLINE"));
    }
}
