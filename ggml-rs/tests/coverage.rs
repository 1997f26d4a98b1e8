//! Every public function of ggml is wrapped, or stands in one table of omissions with the reason.
//!
//! Reads the bindings and this crate's sources as text: a function that a new ggml brings fails here until somebody has
//! decided about it. `coverage/table.rs` holds the decisions.
//!
//! A binary of its own: nothing here runs ggml, and xtask compiles parts of it, too.

#[path = "coverage/bindings.rs"]
mod bindings;
#[path = "coverage/sources.rs"]
mod sources;
#[path = "coverage/table.rs"]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use bindings::Function;
use sources::Sources;
use table::{INTERNAL, OMITTED, THROUGH};

/// What is wrong, and the counts.
#[derive(Debug, Default)]
struct Report {
    wrong: Vec<String>,
    ops_wrapped: usize,
    ops_omitted: usize,
    others_wrapped: usize,
    others_omitted: usize,
}

/// Compares what ggml offers with what `sources` call and what the tables say.
fn compare(functions: &[Function], sources: &Sources, tables: Tables<'_>) -> Report {
    let mut report = Report::default();
    let omissions = flatten(tables.omitted, &mut report);
    let detours = flatten(tables.through, &mut report);
    let internal = flatten(tables.internal, &mut report);
    let names: BTreeSet<_> = functions
        .iter()
        .map(|function| function.name.as_str())
        .collect();
    for name in omissions
        .keys()
        .chain(detours.keys())
        .chain(internal.keys())
    {
        if !names.contains(name) {
            let line = format!("{name} is in the table, and ggml has no such function");
            report.wrong.push(line);
        }
    }
    for function in functions {
        let name = function.name.as_str();
        let called = sources.calls(name);
        let ways = [
            (called, "called"),
            (omissions.contains_key(name), "in OMITTED"),
            (detours.contains_key(name), "in THROUGH"),
        ];
        let taken: Vec<_> = ways
            .iter()
            .filter(|(taken, _)| *taken)
            .map(|(_, way)| *way)
            .collect();
        match taken[..] {
            [_] => {}
            [] => report.wrong.push(format!(
                "{name} is neither wrapped nor in the table of omissions"
            )),
            _ => report
                .wrong
                .push(format!("{name} is {}", taken.join(" and "))),
        }
        if let Some(other) = detours.get(name)
            && !sources.calls(other)
        {
            let line = format!("{name} is said to be reached through {other}, which nothing calls");
            report.wrong.push(line);
        }
        if internal.contains_key(name) && !called {
            let line = format!("{name} is in INTERNAL, and nothing calls it");
            report.wrong.push(line);
        }
        let offered = called && !internal.contains_key(name);
        let wrapped = offered || detours.contains_key(name);
        if wrapped && function.makes_a_tensor && !sources.has_alias(name) {
            let line = format!("{name} is wrapped, and no method says #[doc(alias = \"{name}\")]");
            report.wrong.push(line);
        }
        *report.count(function.makes_a_tensor, wrapped) += 1;
    }
    report
}

/// The decisions of `coverage/table.rs`.
#[derive(Clone, Copy, Default)]
struct Tables<'t> {
    omitted: &'t [Group<'t>],
    through: &'t [Group<'t>],
    internal: &'t [Group<'t>],
}

/// What is said about some functions.
type Group<'t> = (&'t str, &'t [&'t str]);

impl Report {
    fn count(&mut self, op: bool, wrapped: bool) -> &mut usize {
        match (op, wrapped) {
            (true, true) => &mut self.ops_wrapped,
            (true, false) => &mut self.ops_omitted,
            (false, true) => &mut self.others_wrapped,
            (false, false) => &mut self.others_omitted,
        }
    }
}

/// The table by name. A name that stands there twice is wrong.
fn flatten<'t>(table: &[Group<'t>], report: &mut Report) -> BTreeMap<&'t str, &'t str> {
    let mut by_name = BTreeMap::new();
    for (about, names) in table {
        for name in *names {
            if by_name.insert(*name, *about).is_some() {
                report
                    .wrong
                    .push(format!("{name} stands in a table more than once"));
            }
        }
    }
    by_name
}

fn this_crate() -> Sources {
    Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

fn ggml() -> Vec<Function> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ggml-sys/src/bindings.rs");
    bindings::functions(&std::fs::read_to_string(file).unwrap())
}

#[test]
fn every_function_of_ggml_is_wrapped_or_left_out_for_a_reason() {
    let functions = ggml();
    assert!(
        functions.len() > 600,
        "only {} functions found",
        functions.len()
    );
    let tables = Tables {
        omitted: OMITTED,
        through: THROUGH,
        internal: INTERNAL,
    };
    let report = compare(&functions, &this_crate(), tables);
    // To the stream itself: libtest shows what print macros write only when a test fails.
    let _ = writeln!(
        std::io::stderr(),
        "ops: {} wrapped, {} omitted; other functions: {} wrapped, {} omitted",
        report.ops_wrapped,
        report.ops_omitted,
        report.others_wrapped,
        report.others_omitted
    );
    assert!(
        report.wrong.is_empty(),
        "{} things to decide about in ggml-rs/tests/coverage/table.rs:\n{}",
        report.wrong.len(),
        report.wrong.join("\n")
    );
}

#[test]
fn every_reason_says_something() {
    for (reason, names) in OMITTED.iter().chain(INTERNAL) {
        assert!(
            reason.split_whitespace().count() >= 4 && !names.is_empty(),
            "{reason:?}"
        );
    }
}

#[cfg(test)]
mod faults {
    //! What the comparison must notice, on a small ggml.

    use super::*;

    const GGML: &str = "
        unsafe extern \"C-unwind\" {
            #[link_name = \"ggmlrs_ggml_add\"]
            pub fn ggml_add(ctx: *mut ggml_context, a: *mut ggml_tensor) -> *mut ggml_tensor;
            pub fn ggml_nbytes(tensor: *const ggml_tensor) -> usize;
            pub fn ggml_version() -> *const ::core::ffi::c_char;
        }";

    const CODE: &str = "
        /// See `sys::ggml_version`.
        #[doc(alias = \"ggml_add\")]
        fn add() { let text = \"sys::ggml_version\"; sys::ggml_add(c, a); sys::ggml_nbytes(a); } // sys::ggml_version
        #[cfg(test)]
        mod tests { fn f() { sys::ggml_version(); } }";

    const VERSION: &[Group<'_>] = &[("a reason", &["ggml_version"])];

    fn wrong(code: &str, omitted: &[Group<'_>], through: &[Group<'_>]) -> Vec<String> {
        let tables = Tables {
            omitted,
            through,
            internal: &[],
        };
        compare(&bindings::functions(GGML), &Sources::of([code]), tables).wrong
    }

    #[test]
    fn a_complete_table_passes_and_is_counted() {
        let functions = bindings::functions(GGML);
        let tables = Tables {
            omitted: VERSION,
            ..Tables::default()
        };
        let report = compare(&functions, &Sources::of([CODE]), tables);
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let counts = [
            report.ops_wrapped,
            report.ops_omitted,
            report.others_wrapped,
            report.others_omitted,
        ];
        assert_eq!(counts, [1, 0, 1, 1]);
    }

    /// A comment, a string and a unit test are no calls.
    #[test]
    fn neither_wrapped_nor_omitted() {
        assert_eq!(
            wrong(CODE, &[], &[]),
            ["ggml_version is neither wrapped nor in the table of omissions"]
        );
    }

    #[test]
    fn both_wrapped_and_omitted() {
        let table: &[Group<'_>] = &[("a reason", &["ggml_version", "ggml_nbytes"])];
        assert_eq!(
            wrong(CODE, table, &[]),
            ["ggml_nbytes is called and in OMITTED"]
        );
    }

    #[test]
    fn an_omission_that_ggml_no_longer_has() {
        let table: &[Group<'_>] = &[("a reason", &["ggml_version", "ggml_gone"])];
        assert_eq!(
            wrong(CODE, table, &[]),
            ["ggml_gone is in the table, and ggml has no such function"]
        );
    }

    #[test]
    fn an_op_without_its_alias() {
        let code = CODE.replace("#[doc(alias = \"ggml_add\")]", "");
        assert_eq!(
            wrong(&code, VERSION, &[]),
            ["ggml_add is wrapped, and no method says #[doc(alias = \"ggml_add\")]"]
        );
    }

    /// A name is a whole name: `ggml_add` is not called by whoever calls `ggml_add_id`.
    #[test]
    fn longer_names_do_not_count() {
        let code = CODE.replace("sys::ggml_add(", "sys::ggml_add_id(");
        assert_eq!(
            wrong(&code, VERSION, &[]),
            ["ggml_add is neither wrapped nor in the table of omissions"]
        );
    }

    #[test]
    fn a_detour_must_exist_and_carry_the_alias() {
        let code = CODE
            .replace("sys::ggml_add(", "sys::ggml_binary(")
            .replace("#[doc(alias = \"ggml_add\")]", "");
        assert_eq!(
            wrong(&code, VERSION, &[("ggml_elsewhere", &["ggml_add"])]),
            [
                "ggml_add is said to be reached through ggml_elsewhere, which nothing calls",
                "ggml_add is wrapped, and no method says #[doc(alias = \"ggml_add\")]"
            ]
        );
    }

    #[test]
    fn a_name_stands_once() {
        let table: &[Group<'_>] = &[("a reason", &["ggml_version"]), ("b", &["ggml_version"])];
        assert_eq!(
            wrong(CODE, table, &[]),
            ["ggml_version stands in a table more than once"]
        );
    }

    /// What the crate calls for itself needs no alias, and must be called.
    #[test]
    fn calls_for_ourselves_are_no_wrapped_ops() {
        let tables = |internal| Tables {
            omitted: VERSION,
            internal,
            ..Tables::default()
        };
        let functions = bindings::functions(GGML);
        let code = CODE.replace("#[doc(alias = \"ggml_add\")]", "");
        let sources = Sources::of([code.as_str()]);
        let report = compare(&functions, &sources, tables(&[("a", &["ggml_add"])]));
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        assert_eq!((report.ops_wrapped, report.ops_omitted), (0, 1));
        let uncalled = code.replace("sys::ggml_nbytes(a);", "");
        let sources = Sources::of([uncalled.as_str()]);
        let report = compare(
            &functions,
            &sources,
            tables(&[("a", &["ggml_add", "ggml_nbytes"])]),
        );
        assert_eq!(
            report.wrong,
            [
                "ggml_nbytes is neither wrapped nor in the table of omissions",
                "ggml_nbytes is in INTERNAL, and nothing calls it"
            ]
        );
    }
}
