//! Which methods make nodes, read from the sources: each must be a move.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every public method under `src/graph` that says which function of ggml it is and may be refused, and every op without such
/// a name.
pub fn constructors() -> BTreeSet<String> {
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/graph");
    let mut found = BTreeSet::new();
    visit(&graph, false, &mut found);
    found
}

fn visit(folder: &Path, ops: bool, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, ops || path.ends_with("ops"), found);
        } else {
            found.extend(methods(&fs::read_to_string(&path).unwrap(), ops));
        }
    }
}

/// The methods of a file whose result may be an error: those of `ops`, or those that name a function of ggml.
pub fn methods(text: &str, ops: bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut named = false;
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        match line.trim() {
            trimmed if trimmed.starts_with("#[doc(alias = \"ggml_") => named = true,
            trimmed if trimmed.starts_with("#[") || trimmed.starts_with("//") => {}
            trimmed if trimmed.starts_with("pub fn ") => {
                let signature = rest.split('{').next().unwrap_or_default();
                let name = trimmed["pub fn ".len()..].split(['(', '<']).next().unwrap();
                if signature.contains("-> Result<")
                    && (named || (ops && signature.contains("self")))
                {
                    found.insert(name.to_owned());
                }
                named = false;
            }
            _ => named = false,
        }
        rest = after;
    }
    found
}
