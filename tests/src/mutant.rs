//! Mutants of the simulated device: backend libraries made from the patched tree with some of its text changed.
//!
//! metal-sim's builder recompiles what a change touches and links the objects into a library for `--backend-lib`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A text of the patched tree, and what stands there instead.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Relative to ggml's root.
    pub file: &'static str,
    /// Stands exactly once in the file.
    pub from: &'static str,
    /// What replaces it.
    pub to: &'static str,
}

/// Builds a library of the simulated device with these changes; with none, it is the device itself.
///
/// Mutants that share the folder `work` are built one after the other, and compile only what differs.
///
/// # Errors
/// When a change does not fit, or something does not compile.
pub fn build(work: &Path, name: &str, changes: &[Change]) -> Result<PathBuf> {
    let root = Path::new(env!("GGML_ROOT"));
    // The objects of the build come along, so that only what the changes touch is compiled.
    let (tree, objects) = (work.join("ggml"), work.join("metal-sim"));
    copy_changed(&root.join("ggml"), &tree, changes)?;
    copy_changed(&root.join("metal-sim"), &objects, &[])?;
    let library = work.join(format!("{name}.so"));

    let build = metal_sim::Build::new(tree, objects)
        .forced_include(env!("GGML_PREFIX_HEADER"))
        .include(root.join("gen"));
    let build = env!("GGML_DEFINES")
        .split(';')
        .fold(build, |build, define| match define.split_once('=') {
            Some((name, value)) => build.define(name, Some(value)),
            None => build.define(define, None),
        });
    let objects = build.compile()?;
    build.link_plugin(&objects, Path::new(env!("GGML_ARCHIVE")), &library)?;
    Ok(library)
}

/// Copies a folder with the changes made, leaving files alone that are as they should be.
fn copy_changed(from: &Path, to: &Path, changes: &[Change]) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("nothing at {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_changed(&source, &target, changes)?;
            continue;
        }
        let mut content = fs::read(&source)?;
        for change in changes
            .iter()
            .filter(|change| source.ends_with(change.file))
        {
            content = mutate(&content, change)?;
        }
        if fs::read(&target).ok().as_ref() != Some(&content) {
            fs::write(&target, content)?;
        }
    }
    Ok(())
}

fn mutate(content: &[u8], change: &Change) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(content)?;
    let count = text.matches(change.from).count();
    ensure!(
        count == 1,
        "{:?} stands {count} times in {}",
        change.from,
        change.file
    );
    Ok(text.replace(change.from, change.to).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_does_not_stand_there_once_is_an_error() {
        let change = Change {
            file: "kernel.metal",
            from: "float",
            to: "half",
        };
        assert_eq!(mutate(b"float x;", &change).unwrap(), b"half x;");
        assert!(mutate(b"int x;", &change).is_err());
        assert!(mutate(b"float x; float y;", &change).is_err());
    }
}
