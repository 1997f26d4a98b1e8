//! ggml's core and its CPU backend: which files, which flags.

use std::path::Path;

use super::{
    env::{Arch, Os, Parts, Target},
    prefix,
};

/// C files of the core.
const CORE_C: [&str; 3] = ["ggml.c", "ggml-alloc.c", "ggml-quants.c"];

/// C++ files of the core.
const CORE_CPP: [&str; 8] = [
    "ggml.cpp",
    "ggml-backend.cpp",
    "ggml-backend-meta.cpp",
    "ggml-backend-dl.cpp",
    "ggml-backend-reg.cpp",
    "ggml-opt.cpp",
    "ggml-threading.cpp",
    "gguf.cpp",
];

/// C files of the CPU backend.
const CPU_C: [&str; 2] = ["ggml-cpu.c", "quants.c"];

/// C++ files of the CPU backend.
const CPU_CPP: [&str; 14] = [
    "ggml-cpu.cpp",
    "ggml-cpu-out-prod.cpp",
    "amx/amx.cpp",
    "amx/mmq.cpp",
    "binary-ops.cpp",
    "hbm.cpp",
    "llamafile/sgemm.cpp",
    "ops.cpp",
    "repack.cpp",
    "tiled/tiled-kernel.cpp",
    "tiled/tiled.cpp",
    "traits.cpp",
    "unary-ops.cpp",
    "vec.cpp",
];

/// What every x86-64 object may use: the level x86-64-v3 as far as ggml asks for it. Without it ggml is about twenty times
/// slower; programs check the CPU before they use ggml.
pub const X86_64_FLAGS: [&str; 4] = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"];

/// Source files by language, relative to the tree's root.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub c: Vec<String>,
    pub cpp: Vec<String>,
}

/// The core and the CPU backend for `arch`.
pub fn sources(arch: Arch) -> Sources {
    let core = |name: &&str| format!("src/{name}");
    let cpu = |name: &&str| format!("src/ggml-cpu/{name}");
    let mut sources = Sources {
        c: CORE_C
            .iter()
            .map(core)
            .chain(CPU_C.iter().map(cpu))
            .collect(),
        cpp: CORE_CPP
            .iter()
            .map(core)
            .chain(CPU_CPP.iter().map(cpu))
            .collect(),
    };
    let folder = match arch {
        Arch::X86_64 => "x86",
        Arch::Aarch64 => "arm",
        Arch::Other => return sources,
    };
    sources
        .c
        .push(cpu(&format!("arch/{folder}/quants.c").as_str()));
    sources
        .cpp
        .push(cpu(&format!("arch/{folder}/repack.cpp").as_str()));
    sources
}

/// Defines that every file of ggml needs, name and value.
pub fn defines(target: &Target, parts: Parts) -> Vec<(&'static str, Option<&'static str>)> {
    let mut defines = vec![
        ("NDEBUG", None),
        ("GGML_SCHED_MAX_COPIES", Some("4")),
        ("_XOPEN_SOURCE", Some("600")),
        ("GGML_USE_CPU", None),
        ("GGML_USE_CPU_REPACK", None),
        ("GGML_USE_LLAMAFILE", None),
    ];
    defines.extend(match target.os {
        Os::Linux | Os::Android => Some(("_GNU_SOURCE", None)),
        Os::Mac => Some(("_DARWIN_C_SOURCE", None)),
        Os::Windows => Some(("_CRT_SECURE_NO_WARNINGS", None)),
        Os::Other => None,
    });
    if parts.metal {
        // The library's switch is tested with `#if`, so it needs a value.
        defines.extend([
            ("GGML_USE_METAL", None),
            ("GGML_METAL_EMBED_LIBRARY", Some("1")),
            ("GGML_METAL_NDEBUG", None),
        ]);
    }
    if parts.accelerate {
        defines.extend([
            ("GGML_USE_BLAS", None),
            ("GGML_USE_ACCELERATE", None),
            ("GGML_BLAS_USE_ACCELERATE", None),
            ("ACCELERATE_NEW_LAPACK", None),
            ("ACCELERATE_LAPACK_ILP64", None),
        ]);
    }
    defines
}

/// A compiler with everything that all of ggml's files share. `out_dir` holds the tree and the generated headers.
pub fn base_build(target: &Target, parts: Parts, out_dir: &Path) -> cc::Build {
    let tree = out_dir.join("ggml");
    let mut build = cc::Build::new();
    build
        // ggml is useless without optimisation, so debug builds of Rust get it too.
        .opt_level(3)
        .debug(false)
        .warnings(false)
        .include(tree.join("include"))
        .include(tree.join("src"))
        .include(tree.join("src/ggml-cpu"))
        .include(out_dir.join("gen"))
        .flag("-include")
        .flag(out_dir.join("gen").join(prefix::HEADER))
        // Upstream's warnings are upstream's; those about our renaming would hide real errors.
        .flag("-w")
        // Rust's panics pass through C frames (the abort callback), so C needs unwind tables as well.
        .flag("-fexceptions")
        // Messages and asserts say ggml/src/..., not where this build happened to lie.
        .flag(format!("-ffile-prefix-map={}/=", out_dir.display()));
    for (name, value) in defines(target, parts) {
        build.define(name, value);
    }
    if target.arch == Arch::X86_64 {
        build.flags(X86_64_FLAGS);
    }
    build
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: Target = Target {
        os: Os::Linux,
        arch: Arch::X86_64,
    };

    #[test]
    fn each_architecture_brings_its_own_kernels() {
        assert!(
            sources(Arch::X86_64)
                .c
                .contains(&"src/ggml-cpu/arch/x86/quants.c".to_owned())
        );
        assert!(
            sources(Arch::Aarch64)
                .cpp
                .contains(&"src/ggml-cpu/arch/arm/repack.cpp".to_owned())
        );
        assert_eq!(sources(Arch::Other).c.len(), CORE_C.len() + CPU_C.len());
    }

    #[test]
    fn metal_is_defined_only_where_it_is_compiled() {
        let off = Parts {
            metal: false,
            accelerate: false,
            metal_sim: true,
        };
        assert!(
            !defines(&LINUX, off)
                .iter()
                .any(|(name, _)| name.contains("METAL"))
        );
        let on = Parts {
            metal: true,
            accelerate: true,
            metal_sim: false,
        };
        let macos = defines(
            &Target {
                os: Os::Mac,
                arch: Arch::Aarch64,
            },
            on,
        );
        assert!(macos.contains(&("GGML_USE_METAL", None)));
        assert!(macos.contains(&("GGML_METAL_EMBED_LIBRARY", Some("1"))));
        assert!(macos.contains(&("_DARWIN_C_SOURCE", None)));
    }
}
