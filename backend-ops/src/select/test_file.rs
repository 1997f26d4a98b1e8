//! `--test-file`: the cases to run, from a file.
//!
//! A case string a line, as reports print them; blank lines and lines that start with `#` say nothing. What upstream reads is
//! another format: numbers that its `test-export-graph-ops` writes for a model, with the values of C enums, raw op parameters
//! and byte strides. It fits one build of ggml, and makes tensors that no checked constructor would make, so that a wrong file
//! ends the process; ggml-rs has no door for that, and such a file is refused by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::select::filter::split_case;

/// What can be wrong with a file of cases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be read.
    #[error("--test-file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line holds no case.
    #[error("--test-file {}: line {line}: expected a case string such as ADD(type=f32,...), found \"{text}\"", path.display())]
    NoCase {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// It is upstream's.
    #[error(
        "--test-file {}: line {line} is of upstream's export, whose numbers fit one build of ggml alone; write case strings, one a line", path.display()
    )]
    Exported {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
}

/// A case that a file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The line's number, from 1.
    pub line: usize,
    /// ggml's op name.
    pub op: String,
    /// The parameters.
    pub params: String,
}

/// Reads a file of case strings.
///
/// # Errors
/// When it cannot be read or a line is no case string.
pub fn read(path: &Path) -> Result<Vec<Named>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let lines = text.lines().map(str::trim).zip(1..);
    lines
        .filter(|(text, _)| !text.is_empty() && !text.starts_with('#'))
        .map(|(text, line)| parse(path, line, text))
        .collect()
}

fn parse(path: &Path, line: usize, text: &str) -> Result<Named, Error> {
    let path = || path.to_owned();
    match split_case(text) {
        Some((op, params)) if !op.is_empty() => Ok(Named {
            line,
            op: op.to_owned(),
            params: params.to_owned(),
        }),
        _ if is_exported(text) => Err(Error::Exported { path: path(), line }),
        _ => Err(Error::NoCase {
            path: path(),
            line,
            text: text.to_owned(),
        }),
    }
}

/// An op, a type, four sizes and more: numbers from its start.
fn is_exported(text: &str) -> bool {
    let numbers = text
        .split_whitespace()
        .take_while(|word| word.parse::<i64>().is_ok());
    numbers.count() >= 6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Named, Error> {
        parse(Path::new("cases.txt"), 3, text)
    }

    #[test]
    fn a_line_is_a_case_string() {
        let named = parsed("ADD(type=f32,ne=[1,1,1,1])").expect("a case string");
        assert_eq!((named.op.as_str(), named.line), ("ADD", 3));
        assert_eq!(named.params, "type=f32,ne=[1,1,1,1]");
    }

    #[test]
    fn mistakes_name_their_line() {
        for text in ["ADD", "ADD(type=f32", "(type=f32)", "1 2 3"] {
            let message = parsed(text).expect_err("no case string").to_string();
            assert!(
                message.contains("line 3: expected a case string"),
                "{message}"
            );
        }
        let message = parsed("2 0 10 5 4 3 0 2 0 10 5 4 3 4 40 200 800 -").expect_err("numbers");
        assert!(
            message.to_string().contains("upstream's export"),
            "{message}"
        );
    }
}
