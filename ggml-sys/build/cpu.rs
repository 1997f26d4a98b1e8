//! ggml's core and its CPU backend: which files, which flags.

use std::path::Path;

use super::{
    env::{Arch, Os, Parts, Target},
    prefix,
    tree::Tree,
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
const CPU_CPP: [&str; 13] = [
    "ggml-cpu.cpp",
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

/// Ours: what the core needs of a CPU, as data.
pub const NEEDS: &str = "src/ggml-cpu/needs.c";

/// Ours: picks one of several copies of the CPU backend.
pub const LEVELS: &str = "src/ggml-cpu/levels.cpp";

/// Ours: says what the only copy is for.
pub const SINGLE_LEVEL: &str = "src/ggml-cpu/single-level.c";

/// What the names of our own files of the CPU backend start with. Every such C++ file is compiled for each CPU.
const OWN_CPU_CPP: &str = "ggml-cpu-";

/// Source files by language, relative to the tree's root.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub c: Vec<String>,
    pub cpp: Vec<String>,
}

/// The core: everything but backends.
pub fn core_sources() -> Sources {
    let core = |name: &&str| format!("src/{name}");
    Sources {
        c: CORE_C.iter().map(core).collect(),
        cpp: CORE_CPP.iter().map(core).collect(),
    }
}

/// The CPU backend for `arch`, our files among it.
pub fn cpu_sources(tree: &Tree, arch: Arch) -> Sources {
    let cpu = |name: &str| format!("src/ggml-cpu/{name}");
    let own = tree.sources_in("src/ggml-cpu", "cpp").filter(|path| {
        path.rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with(OWN_CPU_CPP))
    });
    let mut sources = Sources {
        c: CPU_C.map(cpu).to_vec(),
        cpp: CPU_CPP
            .map(cpu)
            .into_iter()
            .chain(own.map(str::to_owned))
            .collect(),
    };
    let folder = match arch {
        Arch::X86_64 => "x86",
        Arch::Aarch64 => "arm",
        Arch::Other => return sources,
    };
    sources.c.push(cpu(&format!("arch/{folder}/quants.c")));
    sources.cpp.push(cpu(&format!("arch/{folder}/repack.cpp")));
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
        .flags(base_flags(target, out_dir));
    for (name, value) in defines(target, parts) {
        build.define(name, value);
    }
    build
}

/// Options of every file, in the compiler's own spelling.
pub fn base_flags(target: &Target, out_dir: &Path) -> Vec<String> {
    let header = out_dir.join("gen").join(prefix::HEADER);
    let header = header.display();
    // Upstream's warnings are upstream's; those about our renaming would hide real errors.
    if target.msvc {
        return vec![format!("/FI{header}"), "/EHsc".to_owned(), "/w".to_owned()];
    }
    vec![
        "-include".to_owned(),
        header.to_string(),
        "-w".to_owned(),
        // Rust's panics pass through C frames (the abort callback), so C needs unwind tables as well.
        "-fexceptions".to_owned(),
        // Symbols are renamed in the objects: there must be code in them, whatever CFLAGS say.
        "-fno-lto".to_owned(),
        // Messages and asserts say ggml/src/..., not where this build happened to lie.
        format!("-ffile-prefix-map={}/=", out_dir.display()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: Target = Target {
        os: Os::Linux,
        arch: Arch::X86_64,
        msvc: false,
    };

    #[test]
    fn each_architecture_brings_its_own_kernels() {
        let tree = Tree::default();
        let kernels = "src/ggml-cpu/arch/x86/quants.c".to_owned();
        assert!(cpu_sources(&tree, Arch::X86_64).c.contains(&kernels));
        let kernels = "src/ggml-cpu/arch/arm/repack.cpp".to_owned();
        assert!(cpu_sources(&tree, Arch::Aarch64).cpp.contains(&kernels));
        assert_eq!(cpu_sources(&tree, Arch::Other).c.len(), CPU_C.len());
    }

    #[test]
    fn our_own_files_of_the_backend_are_found_by_name() {
        let mut tree = Tree::default();
        tree.insert("src/ggml-cpu/ggml-cpu-own.cpp", "");
        tree.insert("src/ggml-cpu/levels.cpp", "");
        let found = cpu_sources(&tree, Arch::X86_64).cpp;
        assert!(found.contains(&"src/ggml-cpu/ggml-cpu-own.cpp".to_owned()));
        assert!(!found.contains(&"src/ggml-cpu/levels.cpp".to_owned()));
    }

    #[test]
    fn both_kinds_of_compilers_include_the_prefix_header_first() {
        let flags = base_flags(&LINUX, Path::new("out"));
        assert_eq!(flags[..2], ["-include", "out/gen/ggmlrs-prefix.h"]);
        let msvc = Target {
            os: Os::Windows,
            msvc: true,
            ..LINUX
        };
        assert_eq!(
            base_flags(&msvc, Path::new("out")),
            ["/FIout/gen/ggmlrs-prefix.h", "/EHsc", "/w"]
        );
    }

    #[test]
    fn metal_is_defined_only_where_it_is_compiled() {
        let off = Parts {
            metal: false,
            accelerate: false,
            openblas: false,
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
            openblas: false,
            metal_sim: false,
        };
        let macos = defines(
            &Target {
                os: Os::Mac,
                arch: Arch::Aarch64,
                msvc: false,
            },
            on,
        );
        assert!(macos.contains(&("GGML_USE_METAL", None)));
        assert!(macos.contains(&("GGML_METAL_EMBED_LIBRARY", Some("1"))));
        assert!(macos.contains(&("_DARWIN_C_SOURCE", None)));
    }
}
