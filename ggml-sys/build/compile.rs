//! Compiling: which files with which flags, and the objects that come of it.

use std::path::{Path, PathBuf};

use cc_units::UnitSet;

use super::{
    abi, blas, cpu,
    env::{Parts, Target},
    error::Error,
    info,
    isolate::{Isolation, Strong},
    levels::{self, Plan},
    metal, sim,
    tree::Tree,
};

/// What the build is for.
#[derive(Debug, Clone)]
pub struct Settings {
    pub target: Target,
    pub parts: Parts,
    pub plan: Plan,
}

/// Compiles what is stale and returns every object of the archive.
pub fn all(tree: &Tree, settings: &Settings, out_dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let job = Job {
        settings,
        out_dir,
        adapt: &|_| {},
    };
    let mut objects = job.portable(tree)?;
    let Parts {
        metal, metal_sim, ..
    } = settings.parts;
    if metal {
        objects.extend(job.apple(tree)?);
    }
    if metal_sim {
        objects.extend(sim::compile(&settings.target, settings.parts, out_dir)?);
    }
    Ok(objects)
}

/// One build: what all sets of sources have in common.
pub struct Job<'a> {
    pub settings: &'a Settings,
    /// Holds the prepared tree; objects go below it.
    pub out_dir: &'a Path,
    /// Has the last word on every compiler. The build script leaves them as they are; tests that compile for another
    /// machine name its compiler, as cargo's environment would.
    pub adapt: &'a dyn Fn(&mut cc::Build),
}

impl Job<'_> {
    /// Everything in C and C++: what needs no machine of the target's kind, and no SDK.
    pub fn portable(&self, tree: &Tree) -> Result<Vec<PathBuf>, Error> {
        let mut objects = self.core(tree)?;
        for (copy, flags) in self.settings.plan.copies() {
            objects.extend(self.cpu_backend(tree, copy, &flags)?);
        }
        Ok(objects)
    }

    fn in_tree(&self, files: Vec<String>) -> Vec<PathBuf> {
        files
            .into_iter()
            .map(|file| self.out_dir.join("ggml").join(file))
            .collect()
    }

    /// A compiler for files of ggml's in the language that `standard` names.
    fn ggml(&self, standard: &str, flags: &[String]) -> cc::Build {
        let mut build = cpu::base_build(&self.settings.target, self.settings.parts, self.out_dir);
        let is_cpp = standard.starts_with("c++");
        build.std(standard).cpp(is_cpp).flags(flags);
        if is_cpp {
            // Threads may compute while the process exits. The patches leave nothing for GCC and libstdc++ to destroy then;
            // with other standard libraries a mutex has a destructor too. Clang has an option against all of it.
            build.flag_if_supported("-fno-c++-static-destructors");
        }
        build
    }

    /// Compiles into `objects/<name>`.
    fn compile(
        &self,
        name: &str,
        mut build: cc::Build,
        files: Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, Error> {
        let objects = self.out_dir.join("objects").join(name);
        (self.adapt)(&mut build);
        if self.settings.target.msvc {
            // cc-units drives compilers with GCC's command line only. Every file is compiled every time.
            build.out_dir(objects).files(files);
            return Ok(build.try_compile_intermediates()?);
        }
        Ok(UnitSet::new(build, objects)
            .root("out", self.out_dir)
            .files(files)
            .compile()?)
    }

    /// ggml's core, with what answers for the copies of the CPU backend, and the other backends' C++ files.
    fn core(&self, tree: &Tree) -> Result<Vec<PathBuf>, Error> {
        let Settings { parts, plan, .. } = self.settings;
        let sources = cpu::core_sources();
        let mut c = self.in_tree(sources.c);
        c.extend(self.in_tree(vec![cpu::NEEDS.to_owned()]));
        let mut cpp = self.in_tree(sources.cpp);
        if parts.metal {
            cpp.extend(self.in_tree(metal::host_sources(tree)));
        }
        if parts.accelerate || parts.openblas {
            cpp.extend(self.in_tree(vec![blas::SOURCE.to_owned()]));
        }
        let generated = self.out_dir.join("gen");
        let mut plain_c = [info::FILE, abi::FILE]
            .map(|file| generated.join(file))
            .to_vec();
        let mut plain = self.ggml("c11", &[]);
        match plan {
            Plan::Levels => cpp.extend(self.in_tree(vec![cpu::LEVELS.to_owned()])),
            Plan::Single { label, .. } => {
                plain.define("GGMLRS_CPU_LEVEL", format!("\"{label}\"").as_str());
                plain_c.extend(self.in_tree(vec![cpu::SINGLE_LEVEL.to_owned()]));
            }
        }
        if parts.metal_sim {
            cpp.extend(self.in_tree(vec![sim::START.to_owned()]));
        }

        let mut objects = self.compile("c", self.ggml("c11", &plan.core_flags()), c)?;
        objects.extend(self.compile("plain-c", plain, plain_c)?);
        // No option for a later CPU here: static constructors run before anything could check for one.
        let mut core_cpp = self.ggml("c++17", &[]);
        if parts.openblas {
            core_cpp.includes(blas::find()?.include);
            for name in blas::DEFINES {
                core_cpp.define(name, None);
            }
        }
        objects.extend(self.compile("cpp", core_cpp, cpp)?);
        Ok(objects)
    }

    /// One copy of the CPU backend.
    fn cpu_backend(
        &self,
        tree: &Tree,
        copy: &str,
        flags: &[String],
    ) -> Result<Vec<PathBuf>, Error> {
        let target = &self.settings.target;
        let sources = cpu::cpu_sources(tree, target.arch);
        let (c, cpp) = (self.in_tree(sources.c), self.in_tree(sources.cpp));
        let set = |language: &str| format!("cpu-{copy}/{language}");
        let mut objects = self.compile(&set("c"), self.ggml("c11", flags), c)?;
        objects.extend(self.compile(&set("cpp"), self.ggml("c++17", flags), cpp)?);
        if !levels::is_elf(target) {
            return Ok(objects);
        }
        let strong = match self.settings.plan {
            Plan::Levels => Strong::All,
            Plan::Single { .. } => Strong::These(&[]),
        };
        let isolation = Isolation {
            name: copy,
            strong,
            constructors: None,
        };
        isolation.apply(
            &objects,
            &self.out_dir.join("objects").join(set("isolated")),
        )
    }

    /// What only a Mac compiles: Objective-C and the embedded kernels.
    fn apple(&self, tree: &Tree) -> Result<Vec<PathBuf>, Error> {
        let mut objective_c = self.ggml("gnu11", &[]);
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
