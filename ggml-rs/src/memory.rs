//! Memory that may be refused: sizes that come from files and from callers must not end the process.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

use crate::error::{Error, Result};

/// Makes room for more values.
///
/// # Errors
/// [`Error::Alloc`], which says `what` they are.
pub(crate) fn reserve<T>(to: &mut Vec<T>, more: usize, what: impl Display) -> Result<()> {
    to.try_reserve(more).map_err(|error| Error::Alloc {
        what: what.to_string(),
        bytes: more.saturating_mul(size_of::<T>()),
        detail: error.to_string(),
    })
}

/// Makes room for one more entry.
///
/// # Errors
/// As [`reserve`].
pub(crate) fn reserve_map<K: Eq + Hash, V>(
    to: &mut HashMap<K, V>,
    what: impl Display,
) -> Result<()> {
    to.try_reserve(1).map_err(|error| Error::Alloc {
        what: what.to_string(),
        bytes: to.len().saturating_mul(size_of::<(K, V)>()),
        detail: error.to_string(),
    })
}

/// So many zeros.
///
/// # Errors
/// As [`reserve`].
pub(crate) fn zeros<T: Clone + Default>(len: usize, what: impl Display) -> Result<Vec<T>> {
    let mut zeros = Vec::new();
    reserve(&mut zeros, len, what)?;
    zeros.resize(len, T::default());
    Ok(zeros)
}
