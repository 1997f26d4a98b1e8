//! The BLAS backend on the machine's own OpenBLAS, found through pkg-config. (On macOS it runs on Accelerate instead.)

use std::path::PathBuf;

use super::error::Error;

/// The backend itself.
pub const SOURCE: &str = "src/ggml-blas/ggml-blas.cpp";

/// For ggml's core, which lists the backend, and for the backend. No public header reads them, so no other file is compiled anew.
pub const DEFINES: [&str; 2] = ["GGML_USE_BLAS", "GGML_BLAS_USE_OPENBLAS"];

/// Where OpenBLAS is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OpenBlas {
    /// Folders of `cblas.h`.
    pub include: Vec<PathBuf>,
    /// Folders of the libraries.
    pub search: Vec<PathBuf>,
    /// The libraries.
    pub libraries: Vec<String>,
}

/// Asks pkg-config.
#[cfg(feature = "blas")]
pub fn find() -> Result<OpenBlas, Error> {
    let found = pkg_config::Config::new()
        .cargo_metadata(false)
        .env_metadata(true)
        .probe("openblas")
        .map_err(|error| Error::OpenBlas {
            reason: error.to_string(),
        })?;
    Ok(OpenBlas {
        include: found.include_paths,
        search: found.link_paths,
        libraries: found.libs,
    })
}

/// Without the feature nobody asks.
#[cfg(not(feature = "blas"))]
pub fn find() -> Result<OpenBlas, Error> {
    Ok(OpenBlas::default())
}

/// Tells cargo to link it.
pub fn link() -> Result<(), Error> {
    for line in instructions(&find()?) {
        println!("cargo::{line}");
    }
    Ok(())
}

fn instructions(found: &OpenBlas) -> Vec<String> {
    let search = found
        .search
        .iter()
        .map(|path| format!("rustc-link-search=native={}", path.display()));
    let libraries = found
        .libraries
        .iter()
        .map(|library| format!("rustc-link-lib={library}"));
    search.chain(libraries).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pkg_config_names_is_linked() {
        let found = OpenBlas {
            include: vec!["include".into()],
            search: vec!["lib/openblas".into()],
            libraries: vec!["openblas".to_owned()],
        };
        assert_eq!(
            instructions(&found),
            [
                "rustc-link-search=native=lib/openblas",
                "rustc-link-lib=openblas"
            ]
        );
    }
}
