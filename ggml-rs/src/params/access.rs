//! Which storages a graph reads and writes, and the locks of a run.

use std::collections::{BTreeMap, HashSet};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use ggml_sys as sys;

use super::Storage;
use crate::error::{Error, Result};
use crate::graph::{Graph, node};

/// What to do while another thread holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    /// [`Error::Busy`] instead.
    No,
}

/// The storages of a graph, in the global order.
pub(crate) struct Accesses(Vec<Access>);

struct Access {
    storage: Arc<Storage>,
    writes: bool,
}

/// A lock that a run holds.
pub(crate) enum Held<'a> {
    Read { _guard: RwLockReadGuard<'a, ()> },
    Write { _guard: RwLockWriteGuard<'a, ()> },
}

impl Accesses {
    /// What `graph` does to the storages of its parameters.
    pub fn of(graph: &Graph) -> Self {
        if graph.params().is_empty() {
            return Self(Vec::new());
        }
        // SAFETY: the graph keeps its tensors alive.
        let written: HashSet<NonNull<sys::ggml_tensor>> = graph
            .tensors()
            .iter()
            .flat_map(|&tensor| unsafe { node::written(tensor) })
            .collect();
        // Ordered by id: every plan takes its locks in this order, so none waits for another in a circle.
        let mut storages = BTreeMap::new();
        for leaf in graph.params() {
            let storage = leaf.param.storage();
            let access = storages.entry(storage.id()).or_insert_with(|| Access {
                storage: Arc::clone(storage),
                writes: false,
            });
            access.writes |= written.contains(&leaf.tensor);
        }
        Self(storages.into_values().collect())
    }

    /// Takes every lock.
    ///
    /// # Errors
    /// [`Error::Busy`] when one is held and `wait` says no; those that were taken are free again.
    pub fn lock(&self, wait: Wait) -> Result<Vec<Held<'_>>> {
        self.0.iter().map(|access| access.lock(wait)).collect()
    }
}

impl Access {
    fn lock(&self, wait: Wait) -> Result<Held<'_>> {
        let lock = self.storage.lock();
        let held = match (self.writes, wait) {
            (true, Wait::Yes) => Some(Held::Write {
                _guard: lock.write().unwrap_or_else(PoisonError::into_inner),
            }),
            (false, Wait::Yes) => Some(Held::Read {
                _guard: lock.read().unwrap_or_else(PoisonError::into_inner),
            }),
            (true, Wait::No) => taken(lock.try_write()).map(|_guard| Held::Write { _guard }),
            (false, Wait::No) => taken(lock.try_read()).map(|_guard| Held::Read { _guard }),
        };
        held.ok_or_else(|| Error::Busy {
            what: self.storage.entries()[0].name.clone(),
        })
    }
}

/// The guard, unless another thread has the lock.
fn taken<G>(attempt: std::result::Result<G, TryLockError<G>>) -> Option<G> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
