//! What cargo and the user say through environment variables.

use std::{env, ffi::OsString, path::PathBuf};

use super::error::Error;

/// Reads a variable and makes cargo run the build again when it changes.
pub fn watched(name: &str) -> Option<OsString> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name)
}

/// A folder that cargo names.
pub fn dir(name: &'static str) -> Result<PathBuf, Error> {
    env::var_os(name)
        .map(PathBuf::from)
        .ok_or(Error::MissingVariable(name))
}

/// What rustc was asked to compile for, beyond and including the target's baseline. (Cargo runs the build script again
/// when it changes.)
pub fn target_features() -> String {
    env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default()
}

/// docs.rs builds documentation without a network: bindings only, nothing to fetch or compile.
pub fn documentation_only() -> bool {
    watched("DOCS_RS").is_some()
}

/// The target, as far as the build depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub os: Os,
    pub arch: Arch,
    /// cl.exe's command line and runtime.
    pub msvc: bool,
}

/// Operating systems that need defines or libraries of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Os {
    Linux,
    Android,
    Mac,
    Windows,
    Other,
}

/// Architectures for which ggml has code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
    Other,
}

impl Target {
    /// Reads cargo's description of the target. (`cfg!` in a build script would describe the host.)
    pub fn from_env() -> Result<Self, Error> {
        let cfg = |name| env::var(name).map_err(|_| Error::MissingVariable(name));
        let target = Self::new(
            &cfg("CARGO_CFG_TARGET_OS")?,
            &cfg("CARGO_CFG_TARGET_ARCH")?,
            &cfg("CARGO_CFG_TARGET_POINTER_WIDTH")?,
            &cfg("CARGO_CFG_TARGET_ENDIAN")?,
        )?;
        let msvc = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "msvc");
        Ok(Self { msvc, ..target })
    }

    fn new(os: &str, arch: &str, pointer_width: &str, endian: &str) -> Result<Self, Error> {
        if pointer_width != "64" || endian != "little" {
            return Err(Error::Target {
                target: format!("{arch}-{os} ({pointer_width}-bit, {endian}-endian)"),
            });
        }
        Ok(Self {
            os: match os {
                "linux" => Os::Linux,
                "android" => Os::Android,
                "macos" => Os::Mac,
                "windows" => Os::Windows,
                _ => Os::Other,
            },
            arch: match arch {
                "x86_64" => Arch::X86_64,
                "aarch64" => Arch::Aarch64,
                _ => Arch::Other,
            },
            msvc: false,
        })
    }
}

/// Which optional parts this build compiles: a cargo feature together with a target it has an effect on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    pub metal: bool,
    pub accelerate: bool,
    pub openblas: bool,
    pub metal_sim: bool,
}

impl Parts {
    pub fn new(target: &Target) -> Self {
        let on_macos = target.os == Os::Mac;
        Self {
            metal: cfg!(feature = "metal") && on_macos,
            accelerate: cfg!(feature = "accelerate") && on_macos,
            // A Mac's BLAS is Accelerate.
            openblas: cfg!(feature = "blas") && !on_macos,
            // Its memory, and how its objects are kept apart, are Linux's.
            metal_sim: cfg!(feature = "metal-sim") && target.os == Os::Linux,
        }
    }

    /// The Metal flavours compiled in, for dependants' build scripts (`DEP_GGML_BACKENDS`).
    pub fn backends(self) -> String {
        let names = [
            (true, "cpu"),
            (self.accelerate || self.openblas, "blas"),
            (self.metal, "metal"),
            (self.metal_sim, "metal-sim"),
        ];
        let present: Vec<&str> = names
            .iter()
            .filter(|(present, _)| *present)
            .map(|(_, name)| *name)
            .collect();
        present.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_bit_little_endian_targets_are_accepted() {
        let target = Target::new("macos", "aarch64", "64", "little").unwrap();
        assert_eq!(
            target,
            Target {
                os: Os::Mac,
                arch: Arch::Aarch64,
                msvc: false,
            }
        );
    }

    #[test]
    fn thirty_two_bit_and_big_endian_targets_are_refused_by_name() {
        for (arch, width, endian) in [("arm", "32", "little"), ("s390x", "64", "big")] {
            let error = Target::new("linux", arch, width, endian)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(arch) && error.contains("64-bit little-endian"),
                "{error}"
            );
        }
    }

    #[test]
    fn apple_parts_have_no_effect_on_linux_and_the_simulator_none_on_macos() {
        let linux = Parts::new(&Target {
            os: Os::Linux,
            arch: Arch::X86_64,
            msvc: false,
        });
        assert!(!linux.metal && !linux.accelerate);
        let macos = Parts::new(&Target {
            os: Os::Mac,
            arch: Arch::Aarch64,
            msvc: false,
        });
        assert!(!macos.metal_sim);
        assert!(macos.backends().starts_with("cpu"));
    }
}
