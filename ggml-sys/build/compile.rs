//! Compiling: which files with which flags, and the objects that come of it.

use std::path::{Path, PathBuf};

use cc_units::UnitSet;

use super::{
    abi, cpu,
    env::{Parts, Target},
    error::Error,
    info, metal, sim,
    tree::Tree,
};

/// Compiles what is stale and returns every object of the archive.
pub fn all(
    tree: &Tree,
    target: &Target,
    parts: Parts,
    out_dir: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let job = Job {
        target,
        parts,
        out_dir,
    };
    let sources = cpu::sources(target.arch);
    let mut c = job.in_tree(sources.c);
    c.extend([info::FILE, abi::FILE].map(|file| out_dir.join("gen").join(file)));
    let mut cpp = job.in_tree(sources.cpp);
    if parts.metal {
        cpp.extend(job.in_tree(metal::host_sources(tree)));
    }
    if parts.accelerate {
        cpp.push(out_dir.join("ggml/src/ggml-blas/ggml-blas.cpp"));
    }

    let mut objects = job.compile("c", job.ggml("c11"), c)?;
    objects.extend(job.compile("cpp", job.ggml("c++17"), cpp)?);
    if parts.metal {
        objects.extend(job.apple(tree)?);
    }
    if parts.metal_sim {
        objects.extend(sim::compile(target, parts, out_dir)?);
    }
    Ok(objects)
}

/// What all sets of sources have in common.
struct Job<'a> {
    target: &'a Target,
    parts: Parts,
    out_dir: &'a Path,
}

impl Job<'_> {
    fn in_tree(&self, files: Vec<String>) -> Vec<PathBuf> {
        files
            .into_iter()
            .map(|file| self.out_dir.join("ggml").join(file))
            .collect()
    }

    /// A compiler for files of ggml's in the language that `standard` names.
    fn ggml(&self, standard: &str) -> cc::Build {
        let mut build = cpu::base_build(self.target, self.parts, self.out_dir);
        build.std(standard).cpp(standard.starts_with("c++"));
        build
    }

    fn compile(
        &self,
        name: &str,
        build: cc::Build,
        files: Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, Error> {
        let objects = self.out_dir.join("objects").join(name);
        Ok(UnitSet::new(build, objects)
            .root("out", self.out_dir)
            .files(files)
            .compile()?)
    }

    /// What only a Mac compiles: Objective-C and the embedded kernels.
    fn apple(&self, tree: &Tree) -> Result<Vec<PathBuf>, Error> {
        let mut objective_c = self.ggml("gnu11");
        // These files retain and release by hand.
        objective_c.flag("-fno-objc-arc");
        let mut objects = self.compile(
            "m",
            objective_c,
            self.in_tree(metal::objective_c_sources(tree)),
        )?;
        let assembly = metal::embed(tree, &self.out_dir.join("gen/embed"))?;
        objects.extend(self.compile("asm", cc::Build::new(), vec![assembly])?);
        Ok(objects)
    }
}
