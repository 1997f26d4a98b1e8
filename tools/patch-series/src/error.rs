//! What can be wrong with a series: each error names the patch, the file and the remedy.

use std::{io, path::PathBuf};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// `series.toml` is not as it should be.
    #[error("{} does not read as a series: {reason}", file.display())]
    Series {
        /// The file.
        file: PathBuf,
        /// What the parser said.
        reason: String,
    },

    /// A diff would silently be left out.
    #[error(
        "{name}.patch lies in patches/ but series.toml does not list it. Add an entry or delete the file"
    )]
    NotInSeries {
        /// The patch.
        name: String,
    },

    /// A listed diff is missing.
    #[error(
        "series.toml lists {name}, but patches/{name}.patch does not exist. Add it or drop the entry"
    )]
    NoSuchPatch {
        /// The patch.
        name: String,
    },

    /// A text that this crate does not apply.
    #[error("{name}.patch is not a unified diff with a/ and b/ prefixes: {reason}")]
    Diff {
        /// The patch.
        name: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A hunk finds no place.
    #[error(
        "{name}.patch does not apply to {file} ({reason}). Refresh the patch against this ggml (vendor/README.md, \
         \"Upgrading\"), or unset GGML_SRC_DIR to build the version that it was made for"
    )]
    Hunk {
        /// The patch.
        name: String,
        /// The file that it changes.
        file: String,
        /// Which hunk, or that the change is there already.
        reason: String,
    },

    /// An overlay hides a file of ggml's.
    #[error(
        "patches/src/{overlay} would replace ggml's own {file}. Change existing files with a patch instead"
    )]
    Overlay {
        /// The file below `patches/src`.
        overlay: String,
        /// The file of ggml's.
        file: String,
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
}
