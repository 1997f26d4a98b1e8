//! What can go wrong between a Metal source file and an object file.

use std::fmt;
use std::path::PathBuf;

/// A place in a Metal or Objective-C source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, as it is named in diagnostics and `#line` directives.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An error of the translation or of the compilation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A construct the translation does not know.
    ///
    /// Guessing would simulate something else than the kernel, so the build stops here.
    #[error("{at}: metal-sim cannot translate {construct}: {remedy}")]
    Unsupported {
        /// Where the construct stands.
        at: Location,
        /// The construct, quoted from the source.
        construct: String,
        /// What to do about it.
        remedy: String,
    },

    /// The translation and an independent scan of the source disagree on the number of kernels.
    #[error(
        "unit {unit}: {registered} kernels were registered, but the source names {named}: \
         a kernel definition or instantiation has a form that metal-sim/src/transform/kernels.rs does not know"
    )]
    KernelCount {
        /// The unit, e.g. `mul_mm`.
        unit: String,
        /// Registrations the translation emitted.
        registered: usize,
        /// Kernels an independent scan of the source found.
        named: usize,
    },

    /// Something the simulated device takes from a source file is not there.
    #[error(
        "{file}: {name} not found: has upstream renamed it? metal-sim/src/{module} looks it up by this name"
    )]
    Missing {
        /// The file searched.
        file: String,
        /// The name looked for.
        name: String,
        /// The module of this crate that looks for it.
        module: &'static str,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `read`, `write`, ...
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// The C++ compiler failed.
    #[error(transparent)]
    Compile(#[from] cc_units::Error),

    /// No usable C++ compiler for the link step.
    #[error("no C++ compiler to link with: {0}")]
    Compiler(String),

    /// The kernels compute in `_Float16`, which not every C++ compiler has.
    #[error(
        "the simulated Metal device needs a C++ compiler with _Float16 (on x86-64 g++ 12 or clang 15, on AArch64 g++ 13 or \
         clang): set CXX, or build without the feature metal-sim. {program} says:\n{stderr}"
    )]
    NoHalf {
        /// The compiler asked.
        program: String,
        /// What it said.
        stderr: String,
    },

    /// The linker failed.
    #[error("linking {} failed:\n{stderr}", out.display())]
    Link {
        /// The shared library that was to be made.
        out: PathBuf,
        /// What the linker said.
        stderr: String,
    },
}
