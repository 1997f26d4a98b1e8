//! The patch stack: the crate `patch-series` on this build's tree.

use std::path::Path;

use patch_series::Series;

use super::{error::Error, tree::Tree};

/// Everything below `patches/`, read and checked.
#[derive(Debug, Default)]
pub struct Stack(Series);

impl Stack {
    /// Reads `dir`. A diff that the series does not list, or the reverse, is an error: either would be silently lost.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        Ok(Self(Series::read(dir)?))
    }

    /// Lays our own files over `tree`, then applies the diffs in their order.
    pub fn apply(&self, tree: &mut Tree) -> Result<(), Error> {
        Ok(self.0.apply(tree.texts_mut())?)
    }

    /// Name and text of every input, for the build's hash.
    pub fn inputs(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.inputs()
    }
}
