//! The index as a page: every name of ggml's in one place, whatever became of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use anyhow::{Result, ensure};

use super::api::Aliases;
use super::bindings::Function;

/// What is said about some functions.
type Groups<'t> = &'t [(&'t str, &'t [&'t str])];

/// What the index is made of.
pub struct Facts<'t> {
    /// Every function of the bindings.
    pub functions: Vec<Function>,
    /// Every word of the bindings: types and constants too.
    pub words: BTreeSet<&'t str>,
    /// What ggml-rs's items say they stand for.
    pub aliases: Aliases,
    /// Functions that are left out, by reason.
    pub omitted: Groups<'t>,
    /// Functions that are reached through another one.
    pub through: Groups<'t>,
    /// Functions that ggml-rs calls for a purpose of its own.
    pub internal: Groups<'t>,
}

const HEADER: &str = "\
# ggml's names and ours

<!-- Made by `cargo xtask names`. Do not edit: tools/xtask/tests/names.rs compares. -->

Look a name of ggml's up here, or type it into the search of ggml-rs's documentation, which knows the same names. Made by
`cargo xtask names` of the `#[doc(alias = \"..\")]` of ggml-rs's items, of the functions in ggml-sys's bindings and of the decisions
in `ggml-rs/tests/coverage/table.rs`. [Porting a C program](porting.md) says how the pieces go together.
";

/// The page.
///
/// # Errors
/// For an alias that names nothing in ggml.
pub fn page(facts: &Facts<'_>) -> Result<String> {
    for (alias, paths) in &facts.aliases {
        ensure!(
            is_known(facts, alias),
            "{paths:?} carries the alias {alias}, and ggml's headers have no such name"
        );
    }
    let functions: BTreeMap<&str, bool> = facts
        .functions
        .iter()
        .map(|function| (function.name.as_str(), function.makes_a_tensor))
        .collect();
    let (named, others): (Vec<_>, Vec<_>) = facts
        .aliases
        .iter()
        .partition(|(alias, _)| functions.contains_key(alias.as_str()));
    let (ops, calls): (Vec<_>, Vec<_>) = named
        .into_iter()
        .partition(|(alias, _)| functions[alias.as_str()]);

    let mut unnamed: BTreeSet<&str> = functions.keys().copied().collect();
    unnamed.retain(|name| !facts.aliases.contains_key(*name));
    let omitted = groups(facts.omitted, &mut unnamed);
    let through = groups(facts.through, &mut unnamed);
    let internal = groups(facts.internal, &mut unnamed);

    let left_out: usize = omitted.iter().map(|(_, names)| names.len()).sum();
    let named = ops.len() + calls.len();
    let inside = functions.len() - named - left_out;
    let mut page = format!(
        "{HEADER}\nOf ggml's {} functions {named} have a name of ours, {inside} are called by ggml-rs where they are needed, and \
         {left_out} are left out, each for a reason.\n",
        functions.len()
    );
    table(&mut page, "Ops", &ops);
    table(&mut page, "Everything else that is called", &calls);
    table(
        &mut page,
        "Types, constants, and functions that backends publish by name",
        &others,
    );
    list(&mut page, "Left out", &omitted);
    list(&mut page, "Called inside ggml-rs", &internal);
    for (other, names) in &through {
        let _ = writeln!(page, "- {}: through `{other}`", quoted(names.iter()));
    }
    let _ = writeln!(page, "- {}: where they are needed", quoted(unnamed.iter()));
    Ok(page)
}

/// Whether the bindings have such a name. A function that backends publish by name, instead of exporting it, has a type only.
fn is_known(facts: &Facts<'_>, name: &str) -> bool {
    facts.words.contains(name) || facts.words.contains(format!("{name}_t").as_str())
}

/// The names of each group that `unnamed` has, which it then has no more.
fn groups<'t>(groups: Groups<'t>, unnamed: &mut BTreeSet<&str>) -> Vec<(&'t str, Vec<&'t str>)> {
    let mut taken: Vec<_> = groups
        .iter()
        .map(|&(about, names)| {
            let mut names: Vec<_> = names
                .iter()
                .copied()
                .filter(|name| unnamed.remove::<str>(name))
                .collect();
            names.sort_unstable();
            (about, names)
        })
        .collect();
    taken.retain(|(_, names)| !names.is_empty());
    taken
}

fn table(page: &mut String, title: &str, rows: &[(&String, &BTreeSet<String>)]) {
    let _ = write!(page, "\n## {title}\n\n| ggml | ggml-rs |\n|---|---|\n");
    for (name, paths) in rows {
        let _ = writeln!(page, "| `{name}` | {} |", quoted(paths.iter()));
    }
}

fn list(page: &mut String, title: &str, groups: &[(&str, Vec<&str>)]) {
    let _ = write!(page, "\n## {title}\n\n");
    for (about, names) in groups {
        let _ = writeln!(page, "- {}: {about}", quoted(names.iter()));
    }
}

fn quoted(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{}`", name.as_ref())).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(aliases: &[(&str, &str)]) -> Facts<'static> {
        let function = |(name, makes_a_tensor): (&str, bool)| Function {
            name: name.to_owned(),
            makes_a_tensor,
        };
        let alias = |(alias, path): &(&str, &str)| {
            ((*alias).to_owned(), BTreeSet::from([(*path).to_owned()]))
        };
        Facts {
            functions: [
                ("ggml_add", true),
                ("ggml_add_2d", true),
                ("ggml_free", false),
                ("ggml_new", false),
                ("ggml_old", false),
            ]
            .map(function)
            .into(),
            words: [
                "ggml_add",
                "ggml_add_2d",
                "ggml_free",
                "ggml_new",
                "ggml_old",
                "ggml_kind",
            ]
            .into(),
            aliases: aliases.iter().map(alias).collect(),
            omitted: &[("not for us", &["ggml_add_2d", "ggml_old"])],
            through: &[],
            internal: &[("for a purpose", &["ggml_new"])],
        }
    }

    #[test]
    fn each_name_stands_in_one_place() {
        let aliases = [
            ("ggml_add", "Tensor::add"),
            ("ggml_add_2d", "Tensor::add"),
            ("ggml_kind", "Kind"),
        ];
        let mut facts = facts(&aliases);
        facts.words.insert("ggml_set_n_t");
        let of_registry = BTreeSet::from(["Backend::set".to_owned()]);
        facts.aliases.insert("ggml_set_n".to_owned(), of_registry);
        let page = page(&facts).unwrap();
        for line in [
            "Of ggml's 5 functions 2 have a name of ours, 2 are called by ggml-rs where they are needed, and 1 are left out",
            "| `ggml_add_2d` | `Tensor::add` |",
            "| `ggml_kind` | `Kind` |",
            "| `ggml_set_n` | `Backend::set` |",
            "- `ggml_old`: not for us\n",
            "- `ggml_new`: for a purpose\n",
            "- `ggml_free`: where they are needed\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert_eq!(page.matches("`ggml_add_2d`").count(), 1);
    }

    #[test]
    fn an_alias_that_ggml_does_not_know_is_an_error() {
        let error = page(&facts(&[("ggml_ad", "Tensor::add")])).unwrap_err();
        assert!(error.to_string().contains("ggml_ad,"), "{error}");
    }
}
