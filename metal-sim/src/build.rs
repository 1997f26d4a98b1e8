//! From a ggml tree to the objects of its Metal backend on the simulated device.

use std::path::{Path, PathBuf};

use cc_units::UnitSet;

use crate::error::Error;
use crate::extract;
use crate::include::Sources;
use crate::transform;
use crate::unit::{self, Unit};

/// Kernels that dominate run time, worth a longer compilation. The others are small and rarely the limit.
const OPTIMISED: &[&str] = &["mul_mm", "quantize", "misc"];

/// This crate's folder, where the C++ half lies.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// An object file and the unit it was compiled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kernel unit (`mul_mm`, `mul_mm_tensor`, ...), or the name of the C++ file without its extension.
    pub unit: String,
    /// The object file.
    pub path: PathBuf,
}

/// Translates and compiles everything that makes up the simulated Metal device.
///
/// Only what is out of date is compiled: a generated file is written only when its content changes, and objects whose
/// sources and flags are the same are kept in the output directory.
#[derive(Clone, Debug)]
pub struct Build {
    pub(crate) tree: PathBuf,
    pub(crate) out_dir: PathBuf,
    forced_includes: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    defines: Vec<(String, Option<String>)>,
    target: Option<String>,
    compiler: Option<PathBuf>,
    verified: bool,
}

impl Build {
    /// Builds from `tree`, the directory that holds ggml's `include/` and `src/`, into `out_dir`.
    pub fn new(tree: impl Into<PathBuf>, out_dir: impl Into<PathBuf>) -> Self {
        Build {
            tree: tree.into(),
            out_dir: out_dir.into(),
            forced_includes: Vec::new(),
            includes: Vec::new(),
            defines: Vec::new(),
            target: None,
            compiler: None,
            verified: false,
        }
    }

    /// Compiles for `triple`, in place of what cargo compiles for. The `cc` crate finds the compiler, as it does in a
    /// build script.
    pub fn target(mut self, triple: impl Into<String>) -> Self {
        self.target = Some(triple.into());
        self
    }

    /// Includes `header` at the start of every file, as the compiler's `-include` does.
    pub fn forced_include(mut self, header: impl Into<PathBuf>) -> Self {
        self.forced_includes.push(header.into());
        self
    }

    /// Searches `dir` for headers, after the tree's own directories.
    pub fn include(mut self, dir: impl Into<PathBuf>) -> Self {
        self.includes.push(dir.into());
        self
    }

    /// Defines a macro in every file.
    pub fn define<'a>(mut self, name: &str, value: impl Into<Option<&'a str>>) -> Self {
        self.defines
            .push((name.to_owned(), value.into().map(str::to_owned)));
        self
    }

    /// Compiles with `compiler`, in place of the one that the `cc` crate finds.
    pub fn compiler(mut self, compiler: impl Into<PathBuf>) -> Self {
        self.compiler = Some(compiler.into());
        self
    }

    /// Compiles the verifier in: kernels report each access to memory, and the device looks for reads of what nobody
    /// wrote, for accesses out of bounds and for races. Many times slower, one thread, the same results. The objects keep
    /// line tables, by which findings are told.
    pub fn verified(mut self, verified: bool) -> Self {
        self.verified = verified;
        self
    }

    /// The files of this crate that the result depends on: for `rerun-if-changed` and for a build hash.
    pub fn inputs() -> Vec<PathBuf> {
        let mut files = Vec::new();
        for dir in ["src", "cpp"] {
            collect_files(&Path::new(CRATE).join(dir), &mut files);
        }
        files.sort();
        files
    }

    /// Translates the kernels and compiles them, the runtime, the device and ggml's Metal host code.
    pub fn compile(&self) -> Result<Vec<Object>, Error> {
        let mut objects = self.compile_kernels()?;
        objects.extend(self.compile_device()?);
        objects.extend(self.compile_host()?);
        Ok(objects)
    }

    /// The kernels and the runtime alone: what a program needs that dispatches kernels without ggml.
    pub fn compile_kernels(&self) -> Result<Vec<Object>, Error> {
        self.check_half()?;
        let sources = Sources::new(&self.tree);
        let units = unit::list(&sources)?;
        let kernels = self.generate_kernels(&sources, &units)?;
        let is_optimised = |(unit, _): &(Unit, PathBuf)| OPTIMISED.contains(&unit.kind.as_str());
        let (optimised, small): (Vec<_>, Vec<_>) = kernels.into_iter().partition(is_optimised);
        let (tensor, plain): (Vec<_>, Vec<_>) = small.into_iter().partition(|(u, _)| u.tensor);
        let mut runtime = cpp_files(&Path::new(CRATE).join("cpp/runtime"))?;
        runtime.push(self.generate("units.cpp", &transform::table(&units))?);

        // C++20 for the tensor variants: their descriptors are template arguments of class type.
        // What is verified is not compiled for speed: loops stay loops, whose accesses are reported.
        let flags = self.kernel_flags("c++20", if self.verified { 1 } else { 2 });
        let mut objects = self.compile_set("kernels-O2", flags, paths(optimised))?;
        let flags = self.kernel_flags("c++20", 1);
        objects.extend(self.compile_set("kernels-tensor", flags, paths(tensor))?);
        let flags = self.kernel_flags("c++17", 1);
        objects.extend(self.compile_set("kernels-O1", flags, paths(plain))?);
        objects.extend(self.compile_set("runtime", self.flags("c++17", 2), runtime)?);
        if self.verified {
            let verifier = cpp_files(&Path::new(CRATE).join("cpp/verifier"))?;
            objects.extend(self.compile_set("verifier", self.flags("c++17", 2), verifier)?);
        }
        Ok(objects)
    }

    /// Asks the compiler once, before every kernel fails with a page of errors.
    fn check_half(&self) -> Result<(), Error> {
        let probe = self.generate("half.cpp", "_Float16 twice(_Float16 x) { return x + x; }\n")?;
        let tool = self
            .flags("c++17", 0)
            .try_get_compiler()
            .map_err(|error| Error::Compiler(error.to_string()))?;
        let program = tool.path().display().to_string();
        let answer = tool.to_command().arg("-fsyntax-only").arg(&probe).output();
        match answer {
            Ok(answer) if answer.status.success() => Ok(()),
            Ok(answer) => Err(Error::NoHalf {
                program,
                stderr: String::from_utf8_lossy(&answer.stderr).into_owned(),
            }),
            Err(error) => Err(Error::Compiler(format!("{program}: {error}"))),
        }
    }

    /// What stands in for ggml's two Objective-C files, and the plain C taken from them.
    fn compile_device(&self) -> Result<Vec<Object>, Error> {
        let extracted = extract::device(&Sources::new(&self.tree))?;
        let mut device = cpp_files(&Path::new(CRATE).join("cpp/device"))?;
        device.push(self.generate("device_extract.cpp", &extracted)?);
        self.compile_set("device", self.flags("c++17", 2), device)
    }

    /// ggml's own C++ around the Metal API, and ours that the patches add.
    fn compile_host(&self) -> Result<Vec<Object>, Error> {
        let host = cpp_files(&self.tree.join("src/ggml-metal"))?;
        let mut flags = self.flags("c++17", 3);
        // ggml-metal.cpp gets these through Apple's headers.
        flags.flags(["-include", "memory", "-include", "vector"]);
        self.compile_set("host", flags, host)
    }

    fn generate_kernels(
        &self,
        sources: &Sources,
        units: &[Unit],
    ) -> Result<Vec<(Unit, PathBuf)>, Error> {
        let generate = |unit: &Unit| {
            let code = transform::translate(sources, unit)?;
            let path = self.generate(&format!("kernels/{}.cpp", unit.name), &code)?;
            Ok((unit.clone(), path))
        };
        units.iter().map(generate).collect()
    }

    /// Writes a generated file, unless it holds this content already.
    pub(crate) fn generate(&self, name: &str, content: &str) -> Result<PathBuf, Error> {
        let path = self.out_dir.join("generated").join(name);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == content) {
            return Ok(path);
        }
        let write = |path: &Path| {
            std::fs::create_dir_all(path.parent().unwrap_or(path))?;
            std::fs::write(path, content)
        };
        write(&path).map_err(|source| Error::Io {
            action: "write",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    pub(crate) fn compile_set(
        &self,
        name: &str,
        flags: cc::Build,
        files: Vec<PathBuf>,
    ) -> Result<Vec<Object>, Error> {
        let units: Vec<String> = files.iter().map(|path| stem(path)).collect();
        // Next to those without the verifier, so that neither is compiled again because of the other.
        let name = match self.verified {
            true => format!("{name}-verified"),
            false => name.to_owned(),
        };
        let set = UnitSet::new(flags, self.out_dir.join("objects").join(name))
            .root("out", &self.out_dir)
            .root("ggml", &self.tree)
            .root("metal-sim", CRATE);
        // The caller's folders too, so that objects survive a move of the caller's tree.
        let set = self
            .includes
            .iter()
            .enumerate()
            .fold(set, |set, (i, dir)| set.root(&format!("include-{i}"), dir));
        let objects = set.files(files).compile()?;
        let named = units.into_iter().zip(objects);
        Ok(named.map(|(unit, path)| Object { unit, path }).collect())
    }

    /// Flags for every file: the tree's headers, ours, and the caller's.
    pub(crate) fn flags(&self, standard: &str, optimisation: u32) -> cc::Build {
        let mut build = cc::Build::new();
        self.set_target(&mut build);
        build
            .cpp(true)
            .std(standard)
            .opt_level(optimisation)
            .debug(false)
            .warnings(false)
            .cargo_metadata(false)
            .define("NDEBUG", None)
            // ggml-sys tells the symbols of its objects apart, which link-time optimisation would hide from it.
            .flag("-fno-lto")
            .flag(format!("-ffile-prefix-map={}=ggml", self.tree.display()))
            .flag(format!("-ffile-prefix-map={CRATE}=metal-sim"));
        for dir in ["cpp/shim", "cpp/runtime", "cpp/device"] {
            build.include(Path::new(CRATE).join(dir));
        }
        for dir in ["include", "src", "src/ggml-metal"] {
            build.include(self.tree.join(dir));
        }
        build.includes(&self.includes);
        for (name, value) in &self.defines {
            build.define(name, value.as_deref());
        }
        if self.verified {
            build.define("METAL_SIM_VERIFIER", None);
        }
        for header in &self.forced_includes {
            build.flag("-include").flag(header);
        }
        if self.target_arch() == "x86_64" {
            build.flags(["-mavx2", "-mf16c", "-mfma"]);
        }
        build
    }

    /// Outside a build script (tests that rebuild one unit) cargo does not tell `cc` what to compile for.
    fn set_target(&self, build: &mut cc::Build) {
        if std::env::var_os("TARGET").is_none() {
            build.target(&this_host()).host(&this_host());
        }
        if let Some(triple) = &self.target {
            build.target(triple);
        }
        if let Some(compiler) = &self.compiler {
            build.compiler(compiler);
        }
    }

    fn target_arch(&self) -> String {
        match &self.target {
            Some(triple) => triple.split('-').next().unwrap_or_default().to_owned(),
            None => std::env::var("CARGO_CFG_TARGET_ARCH")
                .unwrap_or_else(|_| std::env::consts::ARCH.to_owned()),
        }
    }

    /// Flags that keep MSL's meaning: it reinterprets memory freely and rounds after every operation.
    fn kernel_flags(&self, standard: &str, optimisation: u32) -> cc::Build {
        let mut build = self.flags(standard, optimisation);
        build
            .flags([
                "-ffp-contract=off",
                "-fno-strict-aliasing",
                // MSL's char is signed, C++'s is not on ARM.
                "-fsigned-char",
            ])
            .define("GGML_METAL_HAS_BF16", None);
        if self.verified {
            // Of ThreadSanitizer the compiler's half alone: `cpp/verifier` is what it calls.
            build.flags(["-fsanitize=thread", "-g1"]);
        }
        // clang does not know the flag, and on AArch64 rounds a half after every operation without it.
        let clang = build.try_get_compiler().is_ok_and(|c| c.is_like_clang());
        if !(clang && self.target_arch() == "aarch64") {
            build.flag("-fexcess-precision=16");
        }
        build
    }
}

fn this_host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn paths(generated: Vec<(Unit, PathBuf)>) -> Vec<PathBuf> {
    generated.into_iter().map(|(_, path)| path).collect()
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The C++ files in `dir`, sorted, so that objects come in the same order everywhere.
fn cpp_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Io {
        action: "list",
        path: dir.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Adds the files below `dir`. A directory that cannot be read has no files; compiling reports it.
fn collect_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect_files(&path, files),
            false => files.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_sources_of_both_halves() {
        let inputs = Build::inputs();
        assert!(
            inputs
                .iter()
                .any(|path| path.ends_with("src/transform/lockstep.rs"))
        );
        assert!(
            inputs
                .iter()
                .any(|path| path.ends_with("cpp/runtime/runtime.h"))
        );
        assert!(inputs.iter().all(|path| path.is_file()));
    }

    #[test]
    fn a_generated_file_is_touched_only_when_its_content_changes() {
        let dir = tempfile::tempdir().unwrap();
        let build = Build::new(dir.path(), dir.path());
        let modified = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let path = build.generate("a/b.cpp", "int x;").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(old)
            .unwrap();
        build.generate("a/b.cpp", "int x;").unwrap();
        assert_eq!(modified(&path), old);
        build.generate("a/b.cpp", "int y;").unwrap();
        assert_ne!(modified(&path), old);
    }

    #[test]
    fn a_directory_without_ggml_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let error = Build::new(dir.path(), dir.path())
            .compile()
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot read ") && error.contains("ggml-metal-device.m"),
            "{error}"
        );
    }
}
