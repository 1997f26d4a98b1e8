//! What can stop a build: each error names the step, the thing and the remedy.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Errors of the build script.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{step}: cannot {action} {}: {source}", path.display())]
    Io {
        step: &'static str,
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("environment: {0} is not set. This build script must be run by cargo")]
    MissingVariable(&'static str),

    #[error(
        "target: {target} is not supported: ggml-sys needs a 64-bit little-endian target, because the bindings are \
         generated for one. Choose another --target"
    )]
    Target { target: String },

    #[error(
        "source: GGML_SRC_DIR={} holds no ggml: neither include/ggml.h, ggml/include/ggml.h nor \
         llama.cpp/ggml/include/ggml.h lies under it. Point it at a ggml or llama.cpp checkout, or unset it to use the \
         pinned package", dir.display()
    )]
    SourceDir { dir: PathBuf },

    #[error(
        "source: cargo refused the pinned package {package} because its checksum is not the one in vendor/Cargo.lock. \
         Do not build it: clear cargo's registry cache and try again, and if that does not help see vendor/README.md. \
         Cargo said: {message}"
    )]
    Checksum { package: String, message: String },

    #[error(
        "source: cannot obtain the pinned package {package}: is there a network? Run `cargo fetch --manifest-path \
         vendor/Cargo.toml` once while online, or vendor it (vendor/README.md), or set GGML_SRC_DIR to a ggml source \
         tree. Cargo said: {message}"
    )]
    Fetch { package: String, message: String },

    #[error("source: {} is not a pin that this build understands: {reason}. See vendor/README.md", file.display())]
    Pin { file: PathBuf, reason: String },

    #[error("source: no ggml version in {}: {reason}. Is this a ggml source tree?", file.display())]
    Version { file: PathBuf, reason: &'static str },

    #[error("patches: {0}")]
    Patches(#[from] patch_series::Error),

    #[error(
        "metal: {file}: {reason}. The way upstream embeds its kernels has changed: adapt ggml-sys/build/metal.rs"
    )]
    Embed { file: String, reason: String },

    #[error(
        "blas: no OpenBLAS to link: {reason}. Install its development package (libopenblas-dev on Debian) and pkg-config, or \
         build without the feature `blas`"
    )]
    #[cfg_attr(
        not(feature = "blas"),
        allow(dead_code, reason = "nobody asks for OpenBLAS without the feature")
    )]
    OpenBlas { reason: String },

    #[error("compile: {0}")]
    Compile(#[from] cc_units::Error),

    #[error(
        "isolate: {} is not an object file that this build understands: {reason}. Compile with the feature `native`, \
         or with a target-cpu, and nothing has to be isolated", path.display()
    )]
    Object { path: PathBuf, reason: String },

    #[error("archive: {0}")]
    Archive(#[from] cc::Error),

    #[cfg(feature = "metal-sim")]
    #[error("simulated Metal device: {0}")]
    Sim(#[from] metal_sim::Error),

    #[cfg(any(feature = "buildtime-bindgen", test))]
    #[error(
        "bindings: the feature buildtime-bindgen needs libclang, which was not found: `pip install libclang`, and set \
         LIBCLANG_PATH to the folder that holds the library; or build without the feature. {0}"
    )]
    NoLibclang(String),

    #[cfg(any(feature = "buildtime-bindgen", test))]
    #[error("bindings: {0}")]
    Bindings(#[from] bindgen::BindgenError),

    #[cfg(any(feature = "buildtime-bindgen", test))]
    #[error("bindings: bindgen does not know the Rust version asked for: {0}")]
    BindingsTarget(String),
}

impl Error {
    /// An object file that cannot be isolated.
    pub fn object(path: &Path, reason: &impl ToString) -> Self {
        Self::Object {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// An adapter for `map_err` that adds the step, what was attempted and where.
    pub fn io(
        step: &'static str,
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            step,
            action,
            path,
            source,
        }
    }
}
