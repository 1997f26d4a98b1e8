//! What can go wrong, each with the step, the thing and the remedy.

use std::{io, path::PathBuf};

/// Lines of a compiler's output that an error shows.
const SHOWN_LINES: usize = 16;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The compiler could not be started at all.
    #[error(
        "no C/C++ compiler: `{program}` could not be started ({source}). Install g++ 12 or newer (Debian and Ubuntu: \
         apt-get install g++; macOS: xcode-select --install), or name a compiler in CC and CXX"
    )]
    NoCompiler {
        /// The program that was tried.
        program: String,
        /// Why it did not start.
        source: io::Error,
    },
    /// The compiler is older than what the sources need.
    #[error(
        "the compiler `{program}` is {found}, but {needed} or newer is needed. Install g++ 12 or newer and name it in \
         CC and CXX (for instance CC=gcc-12 CXX=g++-12)"
    )]
    TooOld {
        /// The program that was asked.
        program: String,
        /// What it is.
        found: String,
        /// What it would have to be.
        needed: String,
    },
    /// The compiler does not take the GCC command line, or is not known.
    #[error(
        "the compiler `{program}` is not supported: only GCC, Clang and Apple Clang are. On Windows use the target \
         x86_64-pc-windows-gnu"
    )]
    Unsupported {
        /// The program that was asked.
        program: String,
    },
    /// The `cc` crate could not settle on a compiler or its flags.
    #[error("cannot choose a compiler: {0}")]
    Configure(#[from] cc::Error),
    /// A source file does not compile.
    #[error("compiling {} failed:\n{output}", file.display())]
    Compile {
        /// The source file.
        file: PathBuf,
        /// The compiler's first error and the lines after it.
        output: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted: `read`, `write`, `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// An adapter for `map_err` that adds what was attempted and where.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// A failed compilation, with the part of the compiler's output that a person needs first.
    pub(crate) fn compile(file: impl Into<PathBuf>, stderr: &str) -> Self {
        Self::Compile {
            file: file.into(),
            output: first_error(stderr),
        }
    }
}

/// The first line that reports an error (warnings may come before it) and what follows.
fn first_error(stderr: &str) -> String {
    let is_error = |line: &&str| line.contains("error:") || line.contains("Error:");
    let start = stderr.lines().position(|line| is_error(&line)).unwrap_or(0);
    let shown: Vec<&str> = stderr.lines().skip(start).take(SHOWN_LINES).collect();
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_do_not_hide_the_first_error() {
        let stderr = "a.c:1: warning: x\n".repeat(40) + "a.c:9:3: error: expected ';'\n  int x\n";
        assert_eq!(
            first_error(&stderr),
            "a.c:9:3: error: expected ';'\n  int x"
        );
    }

    #[test]
    fn output_without_an_error_line_is_shown_from_its_start() {
        assert_eq!(first_error("ld: something odd\n"), "ld: something odd");
    }

    #[test]
    fn errors_cross_threads() {
        fn send_and_sync<T: Send + Sync + 'static>() {}
        send_and_sync::<Error>();
    }
}
