//! The environment that a case depends on, and how a shell is told of it.

use std::env;
use std::ffi::OsString;

/// The variables that what becomes of a case depends on, each as a shell sets it.
#[derive(Clone, Debug, Default)]
pub struct Environment(pub(super) Vec<String>);

impl Environment {
    /// This process's, which must be asked before devices are created: that sets some of them.
    #[must_use]
    pub fn read() -> Self {
        let text = |word: OsString| word.into_string().ok();
        Self::of(env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))))
    }

    pub(super) fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let matters = |name: &str| {
            let of = ["METAL_SIM_", "GGML_METAL_", "GGML_RS_CPU_"];
            of.iter().any(|prefix| name.starts_with(prefix))
        };
        let settings = all.into_iter().filter(|(name, _)| matters(name));
        let mut words: Vec<_> = settings
            .map(|(name, value)| format!("{name}={}", quoted(&value)))
            .collect();
        words.sort();
        Self(words)
    }
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
