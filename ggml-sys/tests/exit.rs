//! Nothing of ours is destroyed when the process ends: threads may compute then.
//!
//! A static object with a destructor registers it with `__cxa_atexit` (C++) or `atexit`; one of a thread with
//! `__cxa_thread_atexit`. The archive's objects refer to none of them.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

const OUT_DIR: &str = env!("GGML_SYS_OUT_DIR");

/// Whoever refers to one of these registers a destructor, or something else that runs as a thread or the process ends.
const REGISTER: [&str; 6] = [
    "__cxa_atexit",
    "__cxa_thread_atexit",
    "__cxa_thread_atexit_impl",
    "atexit",
    "at_quick_exit",
    "on_exit",
];

/// Objects that may, with the reason. None does.
const ALLOWED: [(&str, &str); 0] = [];

/// The objects of the archive that refer to a symbol of these, each with the symbol.
fn referring(archive: &Path) -> (usize, BTreeSet<String>) {
    let nm = Command::new("nm").args(["-A", "-u"]).arg(archive).output();
    let nm = nm.expect("this test needs nm, which comes with the compiler (binutils)");
    assert!(
        nm.status.success(),
        "{}",
        String::from_utf8_lossy(&nm.stderr)
    );
    let lines = String::from_utf8(nm.stdout).unwrap();
    // "archive:object: U name"; Apple's symbols have an underscore in front.
    let undefined = lines.lines().filter_map(|line| {
        let (place, symbol) = line.rsplit_once(' ')?;
        let object = place.rsplit(['/', ':']).find(|part| part.contains(".o"))?;
        let name = symbol
            .strip_prefix('_')
            .filter(|_| cfg!(target_vendor = "apple"));
        Some((object.trim().to_owned(), name.unwrap_or(symbol)))
    });
    let mut objects = BTreeSet::new();
    let found = undefined
        .inspect(|(object, _)| {
            objects.insert(object.clone());
        })
        .filter(|(_, name)| REGISTER.contains(name))
        .map(|(object, name)| format!("{object}: {name}"))
        .collect();
    (objects.len(), found)
}

#[test]
fn nothing_is_destroyed_when_the_process_ends() {
    let (objects, found) = referring(&Path::new(OUT_DIR).join("libggmlrs.a"));
    assert!(objects > 25, "only {objects} objects: is this the archive?");
    let unexplained: Vec<_> = found
        .iter()
        .filter(|found| !ALLOWED.iter().any(|(object, _)| found.starts_with(object)))
        .collect();
    assert!(
        unexplained.is_empty(),
        "make them references to objects on the heap, as patch 0062 does: {unexplained:#?}"
    );
}

/// What only a Mac compiles: its C++ files are those of the simulated device, and its Objective-C is C, whose static objects
/// have no destructors. A Mac's compiler also takes an option against them.
#[test]
fn objective_c_registers_nothing_either() {
    let metal = Path::new(OUT_DIR).join("ggml/src/ggml-metal");
    let mut files = 0;
    for file in fs::read_dir(metal).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "m") {
            let text = fs::read_to_string(&path).unwrap();
            for word in [
                "atexit",
                "__attribute__((destructor",
                "objc_precise_lifetime",
            ] {
                assert!(!text.contains(word), "{} has {word}", path.display());
            }
            files += 1;
        }
    }
    assert!(files >= 2, "only {files} files");
}
