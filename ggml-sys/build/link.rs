//! The archive, and what cargo and dependants are told about it.

use std::path::{Path, PathBuf};

use super::{
    Prepared,
    compile::Settings,
    cpu,
    env::{Os, Parts, Target},
    error::Error,
    levels::Plan,
    metal, prefix,
};

/// Name of the archive, unlike any other crate's ggml so that no search path can confuse the two.
pub const ARCHIVE: &str = "ggmlrs";

/// Puts all objects into one static archive in `out_dir`.
pub fn archive(objects: &[PathBuf], out_dir: &Path) -> Result<(), Error> {
    cc::Build::new()
        .cargo_metadata(false)
        .out_dir(out_dir)
        .objects(objects)
        .try_compile(ARCHIVE)?;
    Ok(())
}

/// Tells cargo what to link.
pub fn link(target: &Target, parts: Parts, out_dir: &Path) {
    println!("cargo::rustc-link-search=native={}", out_dir.display());
    println!("cargo::rustc-link-lib=static={ARCHIVE}");
    for library in libraries(target, parts) {
        println!("cargo::rustc-link-lib={library}");
    }
}

/// System libraries in the form that `rustc-link-lib` takes.
fn libraries(target: &Target, parts: Parts) -> Vec<String> {
    let mut libraries: Vec<String> = match target.os {
        Os::Linux => vec!["stdc++".to_owned(), "m".to_owned()],
        Os::Android => vec!["c++_shared".to_owned(), "m".to_owned()],
        Os::Windows if target.msvc => vec!["advapi32".to_owned()],
        Os::Windows => vec!["stdc++".to_owned(), "advapi32".to_owned()],
        Os::Mac | Os::Other => vec!["c++".to_owned()],
    };
    let framework = |name: &str| format!("framework={name}");
    if parts.metal {
        libraries.extend(metal::FRAMEWORKS.map(framework));
    }
    if parts.accelerate {
        libraries.push(framework("Accelerate"));
    }
    libraries
}

/// Metadata for the build scripts of direct dependants (`DEP_GGML_*`) and cfgs for this crate's own code.
pub fn describe(settings: &Settings, prepared: &Prepared, out_dir: &Path) {
    for (key, value) in metadata(settings, prepared, out_dir) {
        println!("cargo::metadata={key}={value}");
    }
    // For the crate's own integration tests, which see no DEP_* variables.
    println!("cargo::rustc-env=GGML_SYS_OUT_DIR={}", out_dir.display());
    configure(settings.parts, settings.plan == Plan::Levels);
}

fn metadata(
    settings: &Settings,
    prepared: &Prepared,
    out_dir: &Path,
) -> Vec<(&'static str, String)> {
    vec![
        ("root", out_dir.display().to_string()),
        (
            "include",
            out_dir.join("ggml/include").display().to_string(),
        ),
        (
            "prefix_header",
            out_dir
                .join("gen")
                .join(prefix::HEADER)
                .display()
                .to_string(),
        ),
        (
            "archive",
            out_dir
                .join(format!("lib{ARCHIVE}.a"))
                .display()
                .to_string(),
        ),
        ("version", prepared.version.clone()),
        ("patchset", prepared.patchset.clone()),
        ("backends", settings.parts.backends()),
        ("defines", defines(&settings.target, settings.parts)),
    ]
}

/// The defines of every file, `NAME` or `NAME=VALUE`, separated by semicolons.
fn defines(target: &Target, parts: Parts) -> String {
    let define = |(name, value): (&str, Option<&str>)| match value {
        Some(value) => format!("{name}={value}"),
        None => name.to_owned(),
    };
    cpu::defines(target, parts)
        .into_iter()
        .map(define)
        .collect::<Vec<_>>()
        .join(";")
}

/// The cfgs that say whether the simulated Metal device is compiled in, and whether there are several copies of the CPU backend.
pub fn configure(parts: Parts, levels: bool) {
    for (cfg, on) in [
        ("ggml_cpu_levels", levels),
        ("ggml_metal_sim", parts.metal_sim),
    ] {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        if on {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{env::Arch, tree::Tree};

    #[test]
    fn frameworks_are_linked_with_what_needs_them() {
        let macos = Target {
            os: Os::Mac,
            arch: Arch::Aarch64,
            msvc: false,
        };
        let all = libraries(
            &macos,
            Parts {
                metal: true,
                accelerate: true,
                openblas: false,
                metal_sim: false,
            },
        );
        assert!(
            all.contains(&"framework=Metal".to_owned())
                && all.contains(&"framework=Accelerate".to_owned())
        );
        let none = libraries(
            &macos,
            Parts {
                metal: false,
                accelerate: false,
                openblas: false,
                metal_sim: false,
            },
        );
        assert_eq!(none, ["c++"]);
    }

    #[test]
    fn dependants_learn_the_patch_set() {
        let target = Target {
            os: Os::Linux,
            arch: Arch::X86_64,
            msvc: false,
        };
        let prepared = Prepared {
            tree: Tree::default(),
            version: "1.2.3".to_owned(),
            hash: "all".to_owned(),
            patchset: "only patches".to_owned(),
        };
        let parts = Parts {
            metal: false,
            accelerate: false,
            openblas: false,
            metal_sim: false,
        };
        let settings = Settings {
            target,
            parts,
            plan: Plan::Levels,
        };
        let metadata = metadata(&settings, &prepared, Path::new("out"));
        assert!(metadata.contains(&("patchset", "only patches".to_owned())));
        assert!(metadata.contains(&("version", "1.2.3".to_owned())));
    }

    #[test]
    fn msvc_s_runtime_links_itself() {
        let none = Parts {
            metal: false,
            accelerate: false,
            openblas: false,
            metal_sim: false,
        };
        let windows = |msvc| Target {
            os: Os::Windows,
            arch: Arch::X86_64,
            msvc,
        };
        assert_eq!(libraries(&windows(true), none), ["advapi32"]);
        assert_eq!(libraries(&windows(false), none), ["stdc++", "advapi32"]);
    }
}
