//! Where ggml-rs calls ggml, and whether the calling function shows a check.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use patch_series::read_folder;

/// Callers of ggml's functions.
#[derive(Debug, Default)]
pub struct Callers {
    /// By function of ggml: where the first call is that shows no check; nothing where each does.
    unchecked: BTreeMap<String, Option<String>>,
}

/// Reads every source below `dir`.
///
/// # Errors
/// When one cannot be read.
pub fn read(dir: &Path) -> Result<Callers> {
    fs::metadata(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut callers = Callers::default();
    for (path, text) in read_folder(dir)? {
        // Unit tests in files of their own.
        if !path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
        {
            callers.add(&path, &text);
        }
    }
    Ok(callers)
}

impl Callers {
    /// Where `name` is called without a check in sight.
    pub fn unchecked(&self, name: &str) -> Option<&str> {
        self.unchecked.get(name)?.as_deref()
    }

    fn add(&mut self, path: &str, text: &str) {
        // Unit tests stand at the end of their file.
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
        for (at, _) in text.match_indices("sys::ggml_") {
            let name = &text[at + "sys::".len()..];
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &name[..end.unwrap_or(name.len())];
            let start = text[..at].rfind("fn ").unwrap_or(0);
            let function = text[start + 3..].split(['(', '<']).next().unwrap_or("?");
            let body = &text[start..at];
            let shows_check = ["check", "refus", "Refusal"]
                .iter()
                .any(|word| body.contains(word));
            let entry = self.unchecked.entry(name.to_owned()).or_default();
            if !shows_check && entry.is_none() {
                *entry = Some(format!("{path}, fn {function}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_check_in_its_function_is_named() {
        let mut callers = Callers::default();
        let text = "fn good(a) { check_it(a)?; sys::ggml_good(a) }\nfn bad<'g>(a) { sys::ggml_bad(a) }\n\
                    #[cfg(test)]\nmod tests { fn test() { sys::ggml_other() } }";
        callers.add("x.rs", text);
        assert_eq!(callers.unchecked("ggml_good"), None);
        assert_eq!(callers.unchecked("ggml_bad"), Some("x.rs, fn bad"));
        assert_eq!(callers.unchecked("ggml_other"), None);
    }
}
