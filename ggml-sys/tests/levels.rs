//! The copies of the CPU backend: nothing is shared between them, and ggml-cpu.h's functions lead to the picked one.
//!
//! What the linker merges is the danger. A `std::` template that the copy for AVX-512 instantiates may stand in for that
//! of another copy, or of the program, on a CPU without AVX-512.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

const OUT_DIR: &str = env!("GGML_SYS_OUT_DIR");
const LEVELS: [&str; 3] = ["v2", "v3", "v4"];

/// Declared by ggml-cpu.h, and defined by no file of ggml's.
const DEFINED_NOWHERE: &str = "ggml_threadpool_get_n_threads";

/// One line of `nm -A` over the archive.
struct Symbol {
    /// `v2`, `v3`, `v4`, `single`, `sim`, or `core`.
    group: String,
    kind: char,
    name: String,
}

impl Symbol {
    fn is_defined(&self) -> bool {
        !matches!(self.kind, 'U' | 'w' | 'v')
    }

    /// Weak, or a kind of its own for what templates and inline functions hold.
    fn is_weak(&self) -> bool {
        matches!(self.kind, 'W' | 'V' | 'u')
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}, which comes with the compiler: {error}"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn archive() -> String {
    format!("{OUT_DIR}/libggmlrs.a")
}

/// The part of the archive that a member belongs to: the build script puts a copy's name in front of its objects.
fn group(member: &str) -> String {
    let name = member.split('-').next().unwrap_or_default();
    let known = LEVELS.contains(&name) || name == "sim" || name == "single";
    // The core's single-level.c is named so for itself.
    let is_copy = known && !member.starts_with("single-level-");
    if is_copy { name } else { "core" }.to_owned()
}

fn symbols() -> Vec<Symbol> {
    let listing = run("nm", &["-A", "-g", &archive()]);
    let archive = format!("{}:", archive());
    let symbols = listing.lines().filter_map(|line| {
        // "archive:member:address kind name"; what is undefined has no address.
        let (member, rest) = line.strip_prefix(&archive)?.split_once(':')?;
        let mut words = rest.rsplit(' ');
        let (name, kind) = (words.next()?, words.next()?);
        Some(Symbol {
            group: group(member),
            kind: kind.chars().next()?,
            name: name.to_owned(),
        })
    });
    symbols.collect()
}

#[test]
fn members_are_told_apart() {
    for (member, expected) in [
        ("v3-ops-662794aa.o", "v3"),
        ("single-ops-662794aa.o", "single"),
        ("single-level-662794aa.o", "core"),
        ("sim-fiber-a3ec8569.o", "sim"),
        ("ggml-cpu-54255537.o", "core"),
    ] {
        assert_eq!(group(member), expected, "{member}");
    }
}

/// The functions that ggml-cpu.h declares.
fn public_functions() -> Vec<String> {
    let header = fs::read_to_string(format!("{OUT_DIR}/ggml/include/ggml-cpu.h")).unwrap();
    let name = |line: &str| {
        let declaration = line.trim().strip_prefix("GGML_BACKEND_API")?;
        let (front, _) = declaration.split_once('(')?;
        front
            .trim_end()
            .rsplit([' ', '*'])
            .next()
            .map(str::to_owned)
    };
    header.lines().filter_map(name).collect()
}

#[test]
#[cfg_attr(
    not(ggml_cpu_levels),
    ignore = "this build has one copy of the CPU backend"
)]
fn no_symbol_is_shared_between_levels_or_with_the_rest() {
    let symbols = symbols();
    let mut owners = BTreeMap::<&str, BTreeSet<&str>>::new();
    for symbol in symbols.iter().filter(|symbol| symbol.is_defined()) {
        owners
            .entry(&symbol.name)
            .or_default()
            .insert(&symbol.group);
    }
    for level in LEVELS {
        let own = owners
            .values()
            .filter(|groups| groups.contains(level))
            .count();
        assert!(
            own > 250,
            "only {own} symbols of {level}: is this the archive?"
        );
    }
    let shared: Vec<_> = owners
        .iter()
        .filter(|(_, groups)| groups.len() > 1 && groups.iter().any(|group| *group != "core"))
        .collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

#[test]
fn what_the_linker_may_merge_is_used_by_its_own_copy_alone() {
    let symbols = symbols();
    let weak: BTreeMap<_, _> = symbols
        .iter()
        .filter(|symbol| symbol.is_defined() && symbol.is_weak() && symbol.group != "core")
        .map(|symbol| (symbol.name.as_str(), symbol.group.as_str()))
        .collect();
    assert!(
        cfg!(not(target_os = "linux")) || weak.len() > 100,
        "only {} weak symbols",
        weak.len()
    );
    let used_elsewhere: Vec<_> = symbols
        .iter()
        .filter(|symbol| {
            weak.get(symbol.name.as_str())
                .is_some_and(|owner| *owner != symbol.group)
        })
        .map(|symbol| format!("{} of {}", symbol.name, symbol.group))
        .collect();
    assert!(used_elsewhere.is_empty(), "{used_elsewhere:#?}");
}

/// The linker keeps one group of sections of each name, whatever the symbols in it are called. (The variants of a
/// constructor are in a group that is named after none of them.)
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads ELF")]
fn no_group_of_sections_is_shared() {
    let listing = run("readelf", &["-g", "--wide", &archive()]);
    let mut owners = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut member = String::new();
    for line in listing.lines() {
        if let Some(file) = line.strip_prefix("File: ") {
            member = file.rsplit('(').next().unwrap_or_default().to_owned();
        }
        // "COMDAT group section [    1] `.group' [signature] contains 2 sections:"
        let signature = line.strip_prefix("COMDAT group section").and_then(|rest| {
            let (_, rest) = rest.split_once("' [")?;
            Some(rest.split_once(']')?.0)
        });
        if let Some(signature) = signature {
            owners.entry(signature).or_default().insert(group(&member));
        }
    }
    assert!(owners.len() > 100, "only {} groups", owners.len());
    let shared: Vec<_> = owners
        .iter()
        .filter(|(_, groups)| groups.len() > 1)
        .collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

/// A constructor of a static object runs at start-up, on whatever CPU there is.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads ELF")]
fn no_code_for_a_later_cpu_runs_at_start_up() {
    let listing = run("readelf", &["-S", "--wide", &archive()]);
    let mut members = 0;
    let mut member = String::new();
    for line in listing.lines() {
        if let Some(file) = line.strip_prefix("File: ") {
            member = file.rsplit('(').next().unwrap_or_default().to_owned();
            members += 1;
        }
        let constructors = line.contains("INIT_ARRAY") || line.contains(".ctors");
        assert!(
            !constructors || group(&member) == "core",
            "{member}: {line}"
        );
    }
    assert!(members > 25, "only {members} members");
}

#[test]
#[cfg_attr(
    not(ggml_cpu_levels),
    ignore = "this build has one copy of the CPU backend"
)]
fn every_function_of_ggml_cpu_h_is_defined_once_and_in_each_copy() {
    let symbols = symbols();
    let defined = |name: &str, group: &str| {
        symbols
            .iter()
            .filter(|symbol| symbol.is_defined() && symbol.name == name && symbol.group == group)
            .count()
    };
    let functions = public_functions();
    assert!(functions.len() > 60, "only {} functions", functions.len());
    for function in functions.iter().filter(|name| *name != DEFINED_NOWHERE) {
        let symbol = format!("ggmlrs_{function}");
        assert_eq!(
            defined(&symbol, "core"),
            1,
            "FORWARD({function}) in levels.cpp"
        );
        for level in LEVELS {
            assert_eq!(
                defined(&format!("{symbol}.{level}"), level),
                1,
                "{function} of {level}"
            );
        }
    }
}

/// The macros with which the compiler says what an option lets it use.
fn macros(flag: &str) -> BTreeSet<String> {
    let listing = run("c++", &[flag, "-dM", "-E", "-x", "c++", "/dev/null"]);
    let name = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    listing.lines().filter_map(name).collect()
}

/// The names in the table of `levels.cpp`, with their levels.
fn checked_features() -> BTreeMap<String, u32> {
    let source = fs::read_to_string(format!("{OUT_DIR}/ggml/src/ggml-cpu/levels.cpp")).unwrap();
    let entry = |line: &str| {
        let mut fields = line.trim().strip_prefix("{ \"")?.split(',');
        let name = fields.next()?.trim_end_matches('"');
        Some((name.to_owned(), fields.next()?.trim().parse().ok()?))
    };
    source.lines().filter_map(entry).collect()
}

#[test]
#[cfg_attr(
    not(ggml_cpu_levels),
    ignore = "this build has one copy of the CPU backend"
)]
fn everything_that_a_level_s_option_allows_is_checked_before_it_is_picked() {
    // Parts of a feature that is checked under another name, or facts about types.
    const NOT_FEATURES: [&str; 3] = ["CRC32", "EVEX512", "EVEX256"];
    let checked = checked_features();
    let mut known = macros("-march=x86-64");
    for (level, name) in [2, 3, 4].into_iter().zip(LEVELS) {
        let now = macros(&format!("-march=x86-64-{name}"));
        let mut seen = 0;
        for new in now.difference(&known) {
            let feature = match new.as_str() {
                "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16" => "cx16".to_owned(),
                "__LAHF_SAHF__" => "sahf".to_owned(),
                "__SSE4_1__" => "sse4.1".to_owned(),
                "__SSE4_2__" => "sse4.2".to_owned(),
                other if other.starts_with("__FP_FAST_") => continue,
                other => other.trim_matches('_').to_lowercase(),
            };
            if NOT_FEATURES
                .iter()
                .any(|name| feature == name.to_lowercase())
            {
                continue;
            }
            assert_eq!(checked.get(&feature), Some(&level), "{new} of {name}");
            seen += 1;
        }
        assert!(seen >= 5, "only {seen} features of {name}");
        known.extend(now);
    }
}

#[test]
fn functions_of_ggml_cpu_h_speak_for_the_copy_in_use() {
    assert_eq!(ggml_sys::cpu::level_error(), None);
    let level = ggml_sys::cpu::level().unwrap();
    // SAFETY: the CPU was checked just now; these take nothing.
    let (avx2, avx512) = unsafe {
        (
            ggml_sys::ggml_cpu_has_avx2(),
            ggml_sys::ggml_cpu_has_avx512(),
        )
    };
    if cfg!(ggml_cpu_levels) {
        assert_eq!(avx2 == 1, level != "x86-64-v2", "{level}");
        assert_eq!(avx512 == 1, level == "x86-64-v4", "{level}");
    }
    assert!(Path::new(&archive()).is_file());
}

#[test]
fn a_backend_opened_directly_is_the_registry_s() {
    // SAFETY: the CPU is checked; the backend is used by this thread alone and freed once.
    unsafe {
        assert_eq!(ggml_sys::cpu::level_error(), None);
        let backend = ggml_sys::ggml_backend_cpu_init();
        assert!(!backend.is_null() && ggml_sys::ggml_backend_is_cpu(backend));
        let device = ggml_sys::ggml_backend_get_device(backend);
        let registry = ggml_sys::ggml_backend_dev_backend_reg(device);
        assert_eq!(registry, ggml_sys::ggml_backend_cpu_reg());
        ggml_sys::ggml_backend_cpu_set_n_threads(backend, 2);
        ggml_sys::ggml_backend_free(backend);
        let traits = ggml_sys::ggml_get_type_traits_cpu(ggml_sys::GGML_TYPE_Q8_0);
        assert!((*traits).vec_dot.is_some());
    }
}
