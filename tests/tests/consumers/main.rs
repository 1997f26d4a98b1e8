//! Projects that use ggml-rs in every way that we document, each made in a temporary folder and run.
//!
//! They share a target folder and compiled objects of ggml, so they run one after the other. Cargo must have the registry
//! packages of this workspace, or be able to fetch them.
//!
//! Those that fetch, vendor or package everything first take minutes each: they run with `--include-ignored`, by `.ci/nightly`.

mod project;

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use project::{Project, cargo, checkout, succeed, target_dir, write};

/// A small graph whose result is asserted.
const MAIN: &str = include_str!("app.rs");

/// What [`MAIN`] prints once everything was right.
const RESULT: &str = "6 0 on CPU\n";

/// The crates that are made to be published, in the order of their dependencies.
const PUBLISHED: [&str; 6] = [
    "cc-units",
    "patch-series",
    "metal-sim",
    "ggml-sys",
    "ggml-rs",
    "backend-ops",
];

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // They share a target folder.
    args.test_threads = Some(1);
    let trials = vec![
        trial("by_path", by_path),
        trial("build_script_of_a_dependant", build_script_of_a_dependant),
        trial("documentation_without_network_or_compiler", documentation),
        nightly("by_git", by_git),
        nightly("vendored_offline", vendored_offline),
        nightly(
            "packages_without_the_checkout",
            packages_without_the_checkout,
        ),
    ];
    libtest_mimic::run(&args, trials).exit_code()
}

fn nightly(name: &'static str, test: fn() -> Result<Option<String>>) -> Trial {
    trial(name, test).with_ignored_flag(true)
}

/// A test that may say why it cannot run here, which is a failure where tools are required.
fn trial(name: &'static str, test: fn() -> Result<Option<String>>) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(None) => Ok(Completion::Completed),
        Ok(Some(reason)) if std::env::var_os("GGML_RS_REQUIRE_TOOLS").is_some() => {
            Err(Failed::from(reason))
        }
        Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
        Err(error) => Err(Failed::from(format!("{error:#}"))),
    })
}

fn assert_result(printed: &str) -> Result<Option<String>> {
    ensure!(printed == RESULT, "printed {printed:?}");
    Ok(None)
}

fn by_path() -> Result<Option<String>> {
    let dependency = format!("ggml-rs = {{ path = {:?} }}\n", checkout().join("ggml-rs"));
    assert_result(&Project::new("by-path", &dependency, MAIN)?.run(&[])?)
}

/// The build script of a direct dependant finds what it needs to compile C against this ggml.
fn build_script_of_a_dependant() -> Result<Option<String>> {
    let dependencies = format!(
        "ggml-sys = {{ path = {:?} }}\n\n[build-dependencies]\ncc = \"1\"\n",
        checkout().join("ggml-sys")
    );
    let project = Project::new("native", &dependencies, include_str!("native/main.rs"))?;
    write(&project.path("build.rs"), include_str!("native/build.rs"))?;
    write(&project.path("probe.c"), include_str!("native/probe.c"))?;
    let printed = project.run(&[])?;
    ensure!(printed == "C and Rust agree\n", "printed {printed:?}");
    Ok(None)
}

fn by_git() -> Result<Option<String>> {
    let dependency = match git_dependency()? {
        Ok(dependency) => dependency,
        Err(reason) => return Ok(Some(reason)),
    };
    let mut project = Project::new("by-git", &dependency, MAIN)?;
    own_cargo_home(&mut project)?;
    assert_result(&project.run(&[])?)
}

/// Everything vendored, cargo's home empty, nothing asked of the network.
fn vendored_offline() -> Result<Option<String>> {
    let dependency = match git_dependency()? {
        Ok(dependency) => dependency,
        Err(reason) => return Ok(Some(reason)),
    };
    let mut project = Project::new("vendored", &dependency, MAIN)?;
    own_cargo_home(&mut project)?;
    let pin = checkout().join("vendor/Cargo.toml");
    let pin = pin.to_str().context("the checkout's path is not UTF-8")?;
    // Not --quiet: that would keep back the configuration as well.
    let config = succeed(&mut project.cargo(&["vendor", "--sync", pin, "third-party"]))?;
    ensure!(
        config.contains("[source.vendored-sources]"),
        "cargo vendor printed {config:?}"
    );
    write(&project.path(".cargo/config.toml"), &config)?;

    let home = project.path("empty-home");
    fs::create_dir(&home)?;
    project.settings = vec![("CARGO_HOME", home.clone())];
    assert_result(&project.run(&["--offline"])?)?;
    let downloaded = home.join("registry/cache");
    ensure!(!downloaded.exists(), "cargo downloaded something");
    Ok(None)
}

/// Every package builds from what `cargo package` puts into it, with no checkout around.
fn packages_without_the_checkout() -> Result<Option<String>> {
    let packages = tempfile::tempdir()?;
    let made = packages.path().join("made");
    let mut arguments = vec![
        "package",
        "--quiet",
        "--no-verify",
        "--allow-dirty",
        "--target-dir",
    ];
    arguments.push(
        made.to_str()
            .context("a temporary folder's path is not UTF-8")?,
    );
    for name in PUBLISHED {
        arguments.extend(["--package", name]);
    }
    succeed(&mut cargo(&checkout(), &arguments))?;

    let mut patch = String::from("\n[patch.crates-io]\n");
    for name in PUBLISHED {
        let folder = unpack(&made.join("package"), packages.path(), name)?;
        patch.push_str(&format!("{name} = {{ path = {folder:?} }}\n"));
        check_contents(&folder)?;
    }
    // Compiling the simulator takes minutes; that its C++ is all there can be seen.
    let cpp = Path::new("metal-sim").join("cpp");
    let stem = format!("metal-sim-{}", env!("CARGO_PKG_VERSION"));
    check_same_files(
        &checkout().join(&cpp),
        &packages.path().join(stem).join("cpp"),
    )?;
    let version = env!("CARGO_PKG_VERSION");
    let dependencies = format!("ggml-rs = \"={version}\"\n{patch}");
    assert_result(&Project::new("packaged", &dependencies, MAIN)?.run(&[])?)?;

    // The command line tool and the simulator, which ggml-rs's default features leave out: their Rust is checked.
    let dependencies = format!("backend-ops = \"={version}\"\n{patch}");
    let project = Project::new("packaged-tool", &dependencies, "fn main() {}\n")?;
    succeed(
        project
            .cargo(&["check", "--quiet", "--package", "backend-ops"])
            .env("DOCS_RS", "1"),
    )?;
    Ok(None)
}

fn unpack(packages: &Path, into: &Path, name: &str) -> Result<PathBuf> {
    let stem = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
    let archive = packages.join(format!("{stem}.crate"));
    succeed(
        Command::new("tar")
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(into),
    )?;
    Ok(into.join(stem))
}

/// Licences travel with the code, and ggml's own sources do not.
fn check_contents(package: &Path) -> Result<()> {
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "NOTICE", "README.md"] {
        let path = package.join(file);
        let whole = fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() > 100);
        ensure!(whole, "{} is missing or is no copy of ours", path.display());
    }
    ensure!(
        !package.join("include/ggml.h").exists(),
        "ggml's sources are packaged"
    );
    Ok(())
}

fn check_same_files(ours: &Path, packaged: &Path) -> Result<()> {
    for entry in fs::read_dir(ours)? {
        let entry = entry?;
        let (ours, packaged) = (entry.path(), packaged.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            check_same_files(&ours, &packaged)?;
        } else {
            let same = fs::read(&packaged)
                .is_ok_and(|content| fs::read(&ours).is_ok_and(|text| text == content));
            ensure!(same, "{} is not packaged as it is", ours.display());
        }
    }
    Ok(())
}

/// As docs.rs builds it: no network, and no compiler either.
fn documentation() -> Result<Option<String>> {
    let target = target_dir().join("docs");
    let mut command = cargo(&checkout(), &["doc", "--quiet", "--locked", "--no-deps"]);
    command
        .args(["-p", "ggml-sys", "-p", "ggml-rs"])
        .env("CARGO_TARGET_DIR", &target)
        .env("DOCS_RS", "1")
        .env("CARGO_NET_OFFLINE", "true");
    for compiler in ["CC", "CXX"] {
        command.env(compiler, "/no/compiler/may/be/called");
    }
    succeed(&mut command)?;
    for page in [
        "ggml_sys/fn.ggml_init.html",
        "ggml_rs/plan/struct.Plan.html",
    ] {
        ensure!(
            target.join("doc").join(page).is_file(),
            "there is no page {page}"
        );
    }
    for entry in fs::read_dir(target.join("debug/build"))? {
        let ggml = entry?.path().join("out/ggml");
        ensure!(
            !ggml.exists(),
            "the sources were prepared in {}",
            ggml.display()
        );
    }
    Ok(None)
}

/// A dependency on the checkout's HEAD by `file://`, or why there can be none.
fn git_dependency() -> Result<Result<String, String>> {
    let root = checkout();
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(&root)
        .env("LC_ALL", "C")
        .output();
    let head = match head {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Err("there is no git".to_owned()));
        }
        head => head.context("cannot run git")?,
    };
    let errors = String::from_utf8_lossy(&head.stderr);
    if errors.contains("not a git repository") {
        return Ok(Err("this is no git checkout".to_owned()));
    }
    ensure!(
        head.status.success(),
        "git rev-parse HEAD: {}\n{errors}",
        head.status
    );
    let head = String::from_utf8(head.stdout)?;
    Ok(Ok(format!(
        "ggml-rs = {{ git = \"file://{}\", rev = \"{}\" }}\n",
        root.display(),
        head.trim()
    )))
}

/// A home for cargo that shares the registry's cache, so that git checkouts of this test do not stay in the user's.
fn own_cargo_home(project: &mut Project) -> Result<()> {
    let home = project.path("home");
    fs::create_dir(&home)?;
    let users = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let users = users.context("neither CARGO_HOME nor a home folder is known")?;
    fs::create_dir_all(users.join("registry"))?;
    #[cfg(unix)]
    std::os::unix::fs::symlink(users.join("registry"), home.join("registry"))?;
    for file in ["config.toml", "config"] {
        if users.join(file).is_file() {
            fs::copy(users.join(file), home.join(file))?;
        }
    }
    project.settings = vec![("CARGO_HOME", home)];
    Ok(())
}
