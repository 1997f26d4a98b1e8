//! What people must read after an upgrade, found by comparing both sources.

use std::{collections::BTreeSet, fmt};

use patch_series::{Series, Texts};

/// Functions whose every change matters to the patches or to ggml-rs: file, and the text that starts its definition.
const FUNCTIONS: [(&str, &str); 5] = [
    (
        "src/ggml-metal/ggml-metal-device.m",
        "bool ggml_metal_device_supports_op(",
    ),
    (
        "src/ggml-metal/ggml-metal.cpp",
        "static size_t ggml_backend_metal_buffer_type_get_alloc_size(",
    ),
    (
        "src/ggml-backend.cpp",
        "bool ggml_op_alloc_size_may_expand(",
    ),
    ("src/ggml.c", "bool ggml_prec_set_src("),
    (
        "src/ggml-cpu/ggml-cpu.cpp",
        "static bool ggml_backend_cpu_device_supports_op(",
    ),
];

/// Folders whose lists of source files the build repeats (`ggml-sys/build/cpu.rs`, `metal.rs`).
const FOLDERS: [&str; 3] = ["src/", "src/ggml-cpu/", "src/ggml-metal/"];

/// Files that say how upstream builds.
const BUILD_FILES: [&str; 3] = [
    "src/CMakeLists.txt",
    "src/ggml-cpu/CMakeLists.txt",
    "src/ggml-metal/CMakeLists.txt",
];

/// One thing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// An op of `enum ggml_op` that is new.
    NewOp(String),
    /// An op that is gone.
    GoneOp(String),
    /// A function with another text.
    Function(String),
    /// A file that the patches change, and that upstream changed as well.
    PatchedFile(String),
    /// A file that tells how upstream builds.
    BuildFile(String),
    /// A source file that is new.
    NewSource(String),
    /// A source file that is gone.
    GoneSource(String),
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewOp(op) => write!(f, "new op {op}: does the CPU compute it, does Metal?"),
            Self::GoneOp(op) => write!(f, "op {op} is gone"),
            Self::Function(name) => write!(f, "{name} changed"),
            Self::PatchedFile(file) => write!(f, "{file} changed, and a patch touches it"),
            Self::BuildFile(file) => write!(
                f,
                "{file} changed: compare files and defines with ggml-sys/build"
            ),
            Self::NewSource(file) => write!(f, "new source {file}: does the build need it?"),
            Self::GoneSource(file) => write!(f, "source {file} is gone"),
        }
    }
}

/// Compares two source trees where they concern us.
pub fn compare(old: &Texts, new: &Texts, series: &Series) -> Vec<Reading> {
    let mut reading = Vec::new();
    let (old_ops, new_ops) = (ops(old), ops(new));
    reading.extend(new_ops.difference(&old_ops).cloned().map(Reading::NewOp));
    reading.extend(old_ops.difference(&new_ops).cloned().map(Reading::GoneOp));
    for (file, start) in FUNCTIONS {
        if function(old, file, start) != function(new, file, start) {
            let name = start
                .trim_end_matches('(')
                .rsplit(' ')
                .next()
                .unwrap_or(start);
            reading.push(Reading::Function(name.to_owned()));
        }
    }
    let changed = |file: &&str| old.get(*file) != new.get(*file);
    let patched: BTreeSet<&str> = series
        .patches()
        .iter()
        .flat_map(|(_, diff)| files_in(diff))
        .collect();
    let patched = patched.into_iter().filter(changed);
    reading.extend(patched.map(|file| Reading::PatchedFile(file.to_owned())));
    let build = BUILD_FILES.into_iter().filter(changed);
    reading.extend(build.map(|file| Reading::BuildFile(file.to_owned())));
    let (old_sources, new_sources) = (sources(old), sources(new));
    let names = |files: BTreeSet<&str>| files.into_iter().map(str::to_owned).collect::<Vec<_>>();
    reading.extend(
        names(&new_sources - &old_sources)
            .into_iter()
            .map(Reading::NewSource),
    );
    reading.extend(
        names(&old_sources - &new_sources)
            .into_iter()
            .map(Reading::GoneSource),
    );
    reading
}

fn files_in(diff: &str) -> impl Iterator<Item = &str> {
    diff.lines()
        .filter_map(|line| line.strip_prefix("+++ b/"))
        .map(str::trim_end)
}

/// The values of `enum ggml_op`.
fn ops(tree: &Texts) -> BTreeSet<String> {
    let header = tree
        .get("include/ggml.h")
        .map(String::as_str)
        .unwrap_or_default();
    let body = header
        .split_once("enum ggml_op {")
        .map_or("", |(_, rest)| rest);
    let body = body.split_once('}').map_or("", |(body, _)| body);
    body.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("GGML_OP_") && *word != "GGML_OP_COUNT")
        .map(str::to_owned)
        .collect()
}

/// A function's text: from its first line to the brace that closes it at the start of a line.
fn function<'t>(tree: &'t Texts, file: &str, start: &str) -> Option<&'t str> {
    let text = tree.get(file)?;
    // A declaration ends with a semicolon on its line.
    let begin = text.match_indices(start).map(|(at, _)| at).find(|at| {
        let line = text[*at..].lines().next().unwrap_or_default();
        !line.trim_end().ends_with(';')
    })?;
    let length = text[begin..].find("\n}").unwrap_or(text.len() - begin);
    Some(&text[begin..begin + length])
}

fn sources(tree: &Texts) -> BTreeSet<&str> {
    let directly_in = |path: &&str| {
        let folder = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
        FOLDERS.contains(&folder)
    };
    let is_source = |path: &&str| [".c", ".cpp", ".m"].iter().any(|end| path.ends_with(end));
    tree.keys()
        .map(String::as_str)
        .filter(is_source)
        .filter(directly_in)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Texts {
        files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn ops_functions_and_sources_are_compared() {
        let supports = FUNCTIONS[0];
        let old = tree(&[
            (
                "include/ggml.h",
                "enum ggml_op { GGML_OP_NONE, GGML_OP_ADD, GGML_OP_COUNT };",
            ),
            (
                supports.0,
                "bool ggml_metal_device_supports_op(int x);\nbool ggml_metal_device_supports_op(int x) {\n1\n}\nrest 1",
            ),
            ("src/a.c", ""),
            ("src/ggml-cuda/x.cpp", ""),
        ]);
        let new = tree(&[
            (
                "include/ggml.h",
                "enum ggml_op { GGML_OP_NONE, GGML_OP_SUB, GGML_OP_COUNT };",
            ),
            (
                supports.0,
                "bool ggml_metal_device_supports_op(int x);\nbool ggml_metal_device_supports_op(int x) {\n2\n}\nrest 1",
            ),
            ("src/b.c", ""),
        ]);
        assert_eq!(
            compare(&old, &new, &Series::default()),
            [
                Reading::NewOp("GGML_OP_SUB".into()),
                Reading::GoneOp("GGML_OP_ADD".into()),
                Reading::Function("ggml_metal_device_supports_op".into()),
                Reading::NewSource("src/b.c".into()),
                Reading::GoneSource("src/a.c".into()),
            ]
        );
        assert_eq!(compare(&old, &old, &Series::default()), []);
    }

    #[test]
    fn what_follows_a_function_is_not_part_of_it() {
        let (file, start) = FUNCTIONS[3];
        let text = |rest: &str| tree(&[(file, &format!("{start}int x) {{\nbody\n}}\n{rest}"))]);
        assert_eq!(
            function(&text("a"), file, start),
            function(&text("b"), file, start)
        );
        assert!(function(&text(""), file, start).is_some());
    }
}
