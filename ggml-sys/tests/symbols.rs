//! No symbol of ours can meet another crate's ggml: every one carries the prefix.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

const PREFIX: &str = "ggmlrs_";

/// Where the build script worked.
const OUT_DIR: &str = env!("GGML_SYS_OUT_DIR");

/// The archive's global, strong symbols, as `nm` prints them.
fn strong_symbols(archive: &Path) -> Vec<String> {
    let nm = Command::new("nm")
        .args(["-g", "--defined-only"])
        .arg(archive)
        .output();
    let nm = nm.expect("this test needs nm, which comes with the compiler (binutils)");
    assert!(
        nm.status.success(),
        "{}",
        String::from_utf8_lossy(&nm.stderr)
    );
    let symbols = String::from_utf8(nm.stdout).unwrap();
    // "address type name"; weak ones (W, V, u: templates of the standard library) may be shared.
    let strong = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        matches!(kind, "T" | "D" | "B" | "R" | "S" | "C").then(|| name.to_owned())
    });
    strong.collect()
}

#[test]
fn every_strong_symbol_of_the_archive_carries_the_prefix() {
    let symbols = strong_symbols(&Path::new(OUT_DIR).join("libggmlrs.a"));
    assert!(
        symbols.len() > 1000,
        "only {} symbols: is this the archive?",
        symbols.len()
    );
    let bare: Vec<_> = symbols
        .iter()
        .filter(|symbol| !is_prefixed(symbol))
        .collect();
    assert!(
        bare.is_empty(),
        "add these to ggml-sys/build/prefix.rs: {bare:#?}"
    );
}

/// C names start with the prefix, mangled C++ names contain it in one of their parts.
fn is_prefixed(symbol: &str) -> bool {
    // Apple's symbols have an underscore in front.
    let name = if cfg!(target_vendor = "apple") {
        symbol.strip_prefix('_').unwrap_or(symbol)
    } else {
        symbol
    };
    name.starts_with(PREFIX) || (name.starts_with("_Z") && name.contains(PREFIX))
}

/// What this host does not compile (Objective-C, other architectures) cannot be asked of `nm`: read it instead.
#[test]
fn functions_of_files_that_are_not_compiled_here_are_renamed_too() {
    let header = fs::read_to_string(Path::new(OUT_DIR).join("gen/ggmlrs-prefix.h")).unwrap();
    let renamed: BTreeSet<_> = header
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    let src = Path::new(OUT_DIR).join("ggml/src");
    let mut checked = 0;
    for file in [
        "ggml-metal/ggml-metal-device.m",
        "ggml-metal/ggml-metal-context.m",
        "ggml-cpu/arch/arm/quants.c",
        "ggml-cpu/arch/x86/quants.c",
    ] {
        let text = fs::read_to_string(src.join(file)).unwrap();
        for name in global_functions(&text) {
            assert!(renamed.contains(name), "{name} of {file} keeps its name");
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} functions found");
}

/// Names of functions that are defined at the start of a line and not `static`.
fn global_functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| {
            line.starts_with(|c: char| c.is_ascii_alphabetic()) && line.trim_end().ends_with('{')
        })
        .filter(|line| !line.starts_with("static "))
        .filter_map(|line| line.split_once('(')?.0.trim_end().rsplit([' ', '*']).next())
}
