//! The sources as text: which public functions can fail, and where places are taken.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules that nobody reaches from outside: what is `pub` in them is not public.
const PRIVATE: &[&str] = &[
    "check/evaluate/",
    "check/gradients/backward.rs",
    "check/gradients/difference.rs",
    "check/gradients/expected.rs",
    "check/gradients/forward.rs",
    "error/place.rs",
    "files/info.rs",
    "files/load.rs",
    "files/source.rs",
    "graph/arena.rs",
    "graph/node.rs",
    "layout.rs",
    "params/access.rs",
    "params/storage.rs",
    "plan/buffer.rs",
    "plan/partition.rs",
    "plan/pooled.rs",
    "plan/separate.rs",
    "runtime/",
    "train/plans.rs",
];

/// Types in public modules that are not public themselves.
const PRIVATE_TYPES: &[&str] = &[
    "BatchInputs",
    "Core",
    "Dims",
    "Given",
    "Quantizer",
    "Window",
];

fn files() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    visit(&src, &mut |path: PathBuf| {
        let name = path.strip_prefix(&src).unwrap();
        let name = name.to_str().unwrap().replace('\\', "/");
        found.push((name, fs::read_to_string(&path).unwrap()));
    });
    found.sort();
    for private in PRIVATE {
        let exists = found.iter().any(|(name, _)| name.starts_with(private));
        assert!(exists, "no {private}");
    }
    found
}

fn visit(folder: &Path, each: &mut impl FnMut(PathBuf)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                visit(&path, each);
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
            each(path);
        }
    }
}

/// Unit tests stand at the end of their file.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod tests {")
        .map_or(text, |end| &text[..end])
}

/// Every public function whose result may be an error of this crate: `Type::method` or `file::function`.
pub fn fallible() -> Vec<String> {
    let files = files();
    let public = files.iter().filter(|(name, _)| {
        let only_inside = |private: &&&str| name.starts_with(**private);
        *name == "check/evaluate/mod.rs" || !PRIVATE.iter().any(|private| only_inside(&private))
    });
    public
        .flat_map(|(name, text)| {
            let file = name.trim_end_matches(".rs").trim_end_matches("/mod");
            fallible_in(file.rsplit('/').next().unwrap(), text)
        })
        .collect()
}

/// Those of one file.
pub fn fallible_in(file: &str, text: &str) -> Vec<String> {
    let text = without_tests(text);
    let mut found = Vec::new();
    let mut owner = file.to_owned();
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        if line.starts_with("impl") {
            owner = implemented(line).to_owned();
        } else if line == "}" {
            owner = file.to_owned();
        }
        if let Some(name) = line.trim_start().strip_prefix("pub fn ") {
            let signature = rest.split('{').next().unwrap_or_default();
            let name = name.split(['(', '<']).next().unwrap();
            let public = !PRIVATE_TYPES.contains(&owner.as_str());
            if public && signature.contains("-> Result<") {
                found.push(format!("{owner}::{name}"));
            }
        }
        rest = after;
    }
    found
}

/// The type of an `impl` line.
fn implemented(line: &str) -> &str {
    let mut rest = &line["impl".len()..];
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().find_map(|(at, c)| {
            depth += match c {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            (depth == 0).then_some(at + 1)
        });
        rest = &rest[end.unwrap()..];
    }
    let rest = rest.split(" for ").last().unwrap().trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// How many places are taken, and those that would not be the caller's.
pub fn places() -> (usize, Vec<String>) {
    let mut all = (0, Vec::new());
    for (name, text) in files() {
        if name == "error/place.rs" {
            continue;
        }
        let (taken, wrong) = places_in(&name, &text);
        all.0 += taken;
        all.1.extend(wrong);
    }
    all
}

/// Those of one file. A place is taken at the start of a function, in a statement of its own or as an argument of the only call; so
/// the indentation tells that it is not in a closure.
pub fn places_in(file: &str, text: &str) -> (usize, Vec<String>) {
    let (mut taken, mut wrong) = (0, Vec::new());
    // The attributes seen since the last item, and what the last function had.
    let (mut attribute, mut tracked, mut indent) = (false, false, 0);
    for (number, line) in without_tests(text).lines().enumerate() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        if code.starts_with("//") {
            continue;
        }
        if code == "#[track_caller]" {
            attribute = true;
        } else if is_function(code) {
            (tracked, indent, attribute) = (attribute, depth, false);
        } else if code.ends_with('}') && depth <= indent {
            attribute = false;
        }
        let takes = ["here()", "Call::new(", "Location::caller()"];
        if !takes.iter().any(|take| code.contains(take)) || code.starts_with("use ") {
            continue;
        }
        taken += 1;
        let in_closure = code.contains('|') || depth > indent + 8;
        if !tracked || in_closure {
            wrong.push(format!("{file}:{}: {code}", number + 1));
        }
    }
    (taken, wrong)
}

fn is_function(code: &str) -> bool {
    let words = ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe "];
    let mut rest = code;
    while let Some(shorter) = words.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter;
    }
    rest.starts_with("fn ")
}
