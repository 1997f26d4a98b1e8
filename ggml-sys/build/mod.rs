//! The steps of the build, one module each, and the order in which they run.

pub mod abi;
#[cfg(any(feature = "buildtime-bindgen", test))]
pub mod bindings;
pub mod blas;
pub mod compile;
pub mod cpu;
pub mod env;
pub mod error;
pub mod features;
pub mod hash;
pub mod info;
pub mod isolate;
pub mod layout;
pub mod levels;
pub mod link;
pub mod metal;
pub mod patch;
pub mod prefix;
pub mod sim;
pub mod source;
pub mod tree;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use self::{
    compile::Settings,
    env::{Parts, Target},
    error::Error,
    layout::Layout,
    levels::Plan,
    patch::Stack,
    source::Source,
    tree::Tree,
};

/// Runs the build; an error becomes cargo's, without a panic's backtrace.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One instruction to cargo is one line.
            for line in error.to_string().lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let target = Target::from_env()?;
    let parts = Parts::new(&target);
    if env::documentation_only() {
        link::configure(parts, false);
        info::for_documentation();
        return Ok(());
    }
    let (manifest_dir, out_dir) = (env::dir("CARGO_MANIFEST_DIR")?, env::dir("OUT_DIR")?);
    let layout = Layout::find(&manifest_dir);
    let simulator = if parts.metal_sim {
        sim::inputs()
    } else {
        Vec::new()
    };
    layout.watch();
    sim::watch(&simulator);

    let source = Source::obtain(&layout, &manifest_dir, &out_dir)?;
    let prepared = Prepared::write(&source, &layout, &simulator, &out_dir)?;

    let settings = Settings {
        plan: Plan::new(&target, cfg!(feature = "native"), &env::target_features()),
        target,
        parts,
    };
    let Settings { target, .. } = &settings;
    if !target.msvc {
        cc_units::check_compiler(cpu::base_build(target, parts, &out_dir).cpp(true))?;
    }
    let objects = compile::all(&prepared.tree, &settings, &out_dir)?;
    link::archive(&objects, &out_dir)?;
    link::link(target, parts, &out_dir);
    if parts.openblas {
        blas::link()?;
    }
    link::describe(&settings, &prepared, &out_dir);
    info::for_rust(&prepared.version, &prepared.hash);
    Ok(())
}

/// The bindings that this build is for: the committed ones.
#[cfg(not(feature = "buildtime-bindgen"))]
fn current_bindings(_: &Path) -> Result<String, Error> {
    Ok(abi::COMMITTED.to_owned())
}

/// The bindings that this build is for, generated and written where `src/lib.rs` includes them.
#[cfg(feature = "buildtime-bindgen")]
fn current_bindings(out_dir: &Path) -> Result<String, Error> {
    env::watched("LIBCLANG_PATH");
    let text = bindings::generate(&out_dir.join("ggml/include"), out_dir)?;
    tree::write_if_changed(&out_dir.join(bindings::FILE), &text)?;
    Ok(text)
}

/// The patched tree with everything generated from it, on disk and ready to compile.
#[derive(Debug)]
pub struct Prepared {
    pub tree: Tree,
    pub version: String,
    pub hash: String,
    /// Hash of the patches alone.
    pub patchset: String,
}

impl Prepared {
    /// Patches a copy of `source` into `out_dir`. Files that are right already are not touched.
    pub fn write(
        source: &Source,
        layout: &Layout,
        simulator: &[PathBuf],
        out_dir: &Path,
    ) -> Result<Self, Error> {
        let version = source.version()?;
        let mut tree = Tree::read(&source.dir)?;
        let patches = Stack::read(&layout.patches)?;
        patches.apply(&mut tree)?;
        let simulator = read_all(simulator)?;
        let hash = info::hash(layout, &patches, &tree, &simulator)?;

        let generated = out_dir.join("gen");
        let template = tree.get("src/ggml-version.h.in").unwrap_or_default();
        source::write_version_header(template, &version, &source.origin, &generated)?;
        tree::write_if_changed(
            &generated.join(prefix::HEADER),
            &prefix::header(&tree, &simulator),
        )?;
        tree::write_if_changed(&generated.join(info::FILE), &info::c_source(&hash))?;
        tree.write_to(&out_dir.join("ggml"))?;
        tree::write_if_changed(
            &generated.join(abi::FILE),
            &abi::c_asserts(&current_bindings(out_dir)?),
        )?;
        Ok(Self {
            tree,
            version,
            hash,
            patchset: info::patchset(&patches),
        })
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, String)>, Error> {
    paths
        .iter()
        .map(|path| Ok((path.display().to_string(), tree::read_text(path)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::PathBuf, time::SystemTime};

    use super::*;

    /// The real source and patches, prepared in a folder of their own, with patches that a test may edit.
    struct Checkout {
        dir: tempfile::TempDir,
        layout: Layout,
        source: Source,
    }

    impl Checkout {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
            let mut layout = Layout::find(manifest_dir);
            let source = Source::obtain(&layout, manifest_dir, dir.path()).unwrap();
            let patches = dir.path().join("patches");
            for file in tree::existing_files(&layout.patches).unwrap() {
                let copy = patches.join(file.strip_prefix(&layout.patches).unwrap());
                tree::write_if_changed(&copy, &tree::read_text(&file).unwrap()).unwrap();
            }
            layout.patches = patches;
            fs::write(dir.path().join("sim.cpp"), "int metal_sim_x;\n").unwrap();
            Self {
                dir,
                layout,
                source,
            }
        }

        fn prepare(&self) -> Prepared {
            let simulator = [self.dir.path().join("sim.cpp")];
            Prepared::write(&self.source, &self.layout, &simulator, &self.out_dir()).unwrap()
        }

        fn out_dir(&self) -> PathBuf {
            self.dir.path().join("out")
        }

        /// Every file below `out/ggml` and when it was written.
        fn written(&self) -> Vec<(PathBuf, SystemTime)> {
            let files = tree::existing_files(&self.out_dir().join("ggml")).unwrap();
            let stamp = |path: PathBuf| {
                let modified = fs::metadata(&path).unwrap().modified().unwrap();
                (path, modified)
            };
            files.into_iter().map(stamp).collect()
        }
    }

    /// The first patch with a line of code added, and the files that it touches.
    fn edit_one_line(patches: &Path) -> BTreeSet<String> {
        let is_patch = |path: &PathBuf| {
            path.extension()
                .is_some_and(|extension| extension == "patch")
        };
        let patch = tree::existing_files(patches)
            .unwrap()
            .into_iter()
            .find(is_patch)
            .expect("a patch");
        let text = fs::read_to_string(&patch).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("+ "))
            .expect("an added line");
        fs::write(&patch, text.replacen(line, &format!("{line} // edited"), 1)).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("+++ b/"))
            .map(|file| file.trim().to_owned())
            .collect()
    }

    #[test]
    fn one_edited_line_of_a_patch_moves_the_hash_and_rewrites_only_its_files() {
        let checkout = Checkout::new();
        let before = checkout.prepare();
        let stamps = checkout.written();
        let touched = edit_one_line(&checkout.layout.patches);

        let after = checkout.prepare();
        assert_ne!(before.hash, after.hash);
        assert_ne!(before.patchset, after.patchset);
        let ggml = checkout.out_dir().join("ggml");
        let rewritten: BTreeSet<_> = stamps
            .iter()
            .zip(checkout.written())
            .filter(|(old, new)| *old != new)
            .map(|((path, _), _)| {
                path.strip_prefix(&ggml)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        assert!(
            !rewritten.is_empty() && rewritten.is_subset(&touched),
            "{rewritten:?} of {touched:?}"
        );
    }

    #[test]
    fn unchanged_inputs_give_the_same_hash_and_write_nothing() {
        let checkout = Checkout::new();
        let before = checkout.prepare();
        let stamps = checkout.written();
        assert_eq!(checkout.prepare().hash, before.hash);
        assert_eq!(checkout.written(), stamps);
    }

    #[test]
    fn the_simulator_s_sources_and_the_pin_move_the_hash() {
        let mut checkout = Checkout::new();
        let before = checkout.prepare();
        let mut seen = BTreeSet::from([before.hash]);
        fs::write(checkout.dir.path().join("sim.cpp"), "int metal_sim_y;\n").unwrap();
        assert!(seen.insert(checkout.prepare().hash));

        let lock = tree::read_text(&checkout.layout.pin_lock).unwrap();
        checkout.layout.pin_lock = checkout.dir.path().join("lock.toml");
        fs::write(&checkout.layout.pin_lock, lock + "# edited\n").unwrap();
        let after = checkout.prepare();
        assert!(seen.insert(after.hash));
        assert_eq!(before.patchset, after.patchset);
    }
}
