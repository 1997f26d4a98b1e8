//! For which CPUs the CPU backend is compiled: once per level of x86-64, or once for what the user asked for.
//!
//! Plain x86-64 is SSE2, on which ggml is about twenty times slower than it could be, so that is never compiled. Unless
//! the user says more, an x86-64 archive holds the backend three times and `patches/src/ggml-cpu/levels.cpp` picks at run
//! time. Everywhere else there is one copy.

use super::{
    env::{Arch, Os, Target},
    features,
};

/// A level of x86-64, by the name that marks its copy's symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub name: &'static str,
    /// The compiler's option.
    pub flag: &'static str,
}

/// The levels, the lowest first. `levels.cpp` knows the same ones.
pub const LEVELS: [Level; 3] = [
    Level {
        name: "v2",
        flag: "-march=x86-64-v2",
    },
    Level {
        name: "v3",
        flag: "-march=x86-64-v3",
    },
    Level {
        name: "v4",
        flag: "-march=x86-64-v4",
    },
];

/// What is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// One copy per level, picked at run time.
    Levels,
    /// One copy.
    Single {
        /// What users see: `native`, `x86-64-v3`.
        label: String,
        flags: Vec<String>,
    },
}

impl Plan {
    /// Decides by the target, the cargo feature `native`, and the target features that rustc was given
    /// (`CARGO_CFG_TARGET_FEATURE`).
    pub fn new(target: &Target, native: bool, target_features: &str) -> Self {
        let asked = features::flags(target, target_features);
        match target.arch {
            _ if target.msvc => Self::single(
                if features::wants_avx512(target_features) {
                    "avx512"
                } else {
                    "avx2"
                },
                msvc_flags(target, target_features),
            ),
            Arch::X86_64 if native => Self::single("native", vec!["-march=native".to_owned()]),
            // -mcpu is what both compilers take on this architecture; Apple's Clang has no -march=native.
            Arch::Aarch64 if native => Self::single("native", vec!["-mcpu=native".to_owned()]),
            _ if !asked.is_empty() => Self::single("target features", asked),
            Arch::X86_64 if is_elf(target) => Self::Levels,
            // The copies are told apart by renaming symbols in ELF files; other formats get the level in the middle.
            Arch::X86_64 => Self::single("x86-64-v3", vec![LEVELS[1].flag.to_owned()]),
            Arch::Aarch64 => Self::single("aarch64", Vec::new()),
            Arch::Other => Self::single("the target's baseline", Vec::new()),
        }
    }

    fn single(label: &str, flags: Vec<String>) -> Self {
        Self::Single {
            label: label.to_owned(),
            flags,
        }
    }

    /// Options for the core's C files, which hold ggml's conversions: what every CPU that can be picked has.
    ///
    /// The core's C++ files get none: their static constructors run before the CPU can be checked.
    pub fn core_flags(&self) -> Vec<String> {
        match self {
            Self::Levels => vec![LEVELS[0].flag.to_owned()],
            Self::Single { flags, .. } => flags.clone(),
        }
    }

    /// The copies of the CPU backend: a name for the folder and the symbols, and the options.
    pub fn copies(&self) -> Vec<(&'static str, Vec<String>)> {
        match self {
            Self::Levels => LEVELS
                .iter()
                .map(|level| (level.name, vec![level.flag.to_owned()]))
                .collect(),
            Self::Single { flags, .. } => vec![("single", flags.clone())],
        }
    }
}

/// Whether objects are ELF files, whose symbols `isolate` can rename.
pub fn is_elf(target: &Target) -> bool {
    matches!(target.os, Os::Linux | Os::Android)
}

/// cl.exe has three steps and no way to ask for the machine it runs on.
fn msvc_flags(target: &Target, target_features: &str) -> Vec<String> {
    match target.arch {
        Arch::X86_64 if features::wants_avx512(target_features) => vec!["/arch:AVX512".to_owned()],
        Arch::X86_64 => vec!["/arch:AVX2".to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASELINE: &str = "fxsr,sse,sse2,x87";

    fn target(os: Os, arch: Arch) -> Target {
        Target {
            os,
            arch,
            msvc: false,
        }
    }

    fn label(plan: &Plan) -> &str {
        match plan {
            Plan::Levels => "levels",
            Plan::Single { label, .. } => label,
        }
    }

    #[test]
    fn x86_64_gets_every_level_unless_the_user_says_more() {
        let linux = target(Os::Linux, Arch::X86_64);
        let plan = Plan::new(&linux, false, BASELINE);
        assert_eq!(plan, Plan::Levels);
        assert_eq!(plan.core_flags(), ["-march=x86-64-v2"]);
        assert_eq!(
            plan.copies()
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>(),
            ["v2", "v3", "v4"]
        );

        assert_eq!(
            Plan::new(&linux, true, BASELINE).copies(),
            [("single", vec!["-march=native".to_owned()])]
        );
        let asked = Plan::new(&linux, false, &format!("{BASELINE},avx,avx2,fma"));
        assert_eq!(label(&asked), "target features");
        assert!(asked.core_flags().contains(&"-mavx2".to_owned()));
    }

    #[test]
    fn other_object_formats_get_the_level_in_the_middle() {
        for os in [Os::Mac, Os::Windows] {
            let plan = Plan::new(&target(os, Arch::X86_64), false, BASELINE);
            assert_eq!(label(&plan), "x86-64-v3");
            assert_eq!(plan.core_flags(), ["-march=x86-64-v3"]);
        }
    }

    #[test]
    fn aarch64_has_one_copy() {
        let linux = target(Os::Linux, Arch::Aarch64);
        assert!(Plan::new(&linux, false, "neon").core_flags().is_empty());
        assert_eq!(
            Plan::new(&linux, true, "neon").core_flags(),
            ["-mcpu=native"]
        );
        assert_eq!(
            Plan::new(&linux, false, "neon,dotprod,i8mm").core_flags(),
            ["-march=armv8.2-a+dotprod+i8mm"]
        );
    }

    #[test]
    fn msvc_gets_its_own_options() {
        let windows = Target {
            os: Os::Windows,
            arch: Arch::X86_64,
            msvc: true,
        };
        assert_eq!(
            Plan::new(&windows, false, BASELINE).core_flags(),
            ["/arch:AVX2"]
        );
        assert_eq!(
            Plan::new(
                &windows,
                false,
                "avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
            )
            .core_flags(),
            ["/arch:AVX512"]
        );
        let arm = Target {
            arch: Arch::Aarch64,
            ..windows
        };
        assert!(Plan::new(&arm, true, "neon").core_flags().is_empty());
    }
}
