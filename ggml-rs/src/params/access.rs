//! Which storages a graph reads and writes, and the locks of a run.

use std::collections::{BTreeMap, HashSet};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use ggml_sys as sys;

use super::Storage;
use crate::error::{Call, Error, Result};
use crate::graph::{Graph, node};
use crate::inside::{self, Use};

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
    /// A run around this one holds it, and ends later.
    Around,
    Read {
        _guard: RwLockReadGuard<'a, ()>,
    },
    Write {
        _guard: RwLockWriteGuard<'a, ()>,
    },
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
    /// [`Error::Param`] inside of a run that holds one, unless both read.
    pub fn lock(&self, call: Call, wait: Wait) -> Result<Vec<Held<'_>>> {
        let mut held = Vec::with_capacity(self.0.len());
        for access in &self.0 {
            held.push(access.storage.hold(call, access.writes, wait)?);
        }
        Ok(held)
    }

    /// Each storage, and whether it is written.
    pub fn uses(&self) -> Vec<(u64, bool)> {
        let uses = self.0.iter();
        uses.map(|access| (access.storage.id(), access.writes))
            .collect()
    }
}

impl Storage {
    /// Locks its values. Inside of a run it waits for nobody, whatever `wait` says.
    ///
    /// # Errors
    /// [`Error::Busy`] when another thread holds the lock and nothing is to wait; [`Error::Param`] inside of a run that holds
    /// it, unless both read.
    pub fn hold(&self, call: Call, writes: bool, wait: Wait) -> Result<Held<'_>> {
        let around = inside::run();
        match around.as_ref().and_then(|run| run.use_of(self.id())) {
            Some(Use::Reads) if !writes => return Ok(Held::Around),
            Some(used) => return Err(self.held_around(call, writes, used)),
            None => {}
        }
        let wait = if around.is_some() { Wait::No } else { wait };
        let lock = self.lock();
        let held = match (writes, wait) {
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
            what: self.entries()[0].name.clone(),
        })
    }

    fn held_around(&self, call: Call, writes: bool, used: Use) -> Error {
        let verb = |writes| if writes { "writes" } else { "reads" };
        let detail = format!(
            "inside of a closure of a custom op, in a run that {} the storage of parameter `{}`, this call {} it and would wait \
             for the run's end: a closure may only read what its run only reads",
            verb(used == Use::Writes),
            self.entries()[0].name,
            verb(writes),
        );
        call.param(detail)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F32;
    use crate::graph::{Builder, Tensor};
    use crate::params::{Param, Params};
    use crate::{AdamW, Device};

    /// A parameter in a storage of its own.
    fn param(name: &str) -> Param {
        let builder = Params::builder().tensor(name, F32, [4]).unwrap();
        let params = builder.allocate(Device::cpu().unwrap()).unwrap();
        params.get(name).unwrap()
    }

    /// Whether a graph of one output writes each of the parameters, `None` where it does not use it.
    fn writes(
        params: &[Param],
        build: impl for<'g> FnOnce(Builder<'g>, Tensor<'g>) -> Result<Tensor<'g>>,
    ) -> Vec<Option<bool>> {
        let (graph, ()) = Graph::build(|g| {
            let (x, _) = g.input("x", F32, [4])?;
            g.output("y", build(g, x)?.cont()?).map(drop)
        })
        .unwrap();
        let accesses = Accesses::of(&graph).0;
        let of = |param: &Param| {
            let id = param.storage().id();
            accesses.iter().find(|access| access.storage.id() == id)
        };
        params
            .iter()
            .map(|param| of(param).map(|access| access.writes))
            .collect()
    }

    #[test]
    fn reads_are_shared() {
        let [a, b] = ["a", "b"].map(param);
        let params = [a.clone(), b.clone()];
        assert_eq!(writes(&params, |_, x| Ok(x)), [None, None]);
        let sum = writes(&params, |g, x| x.add(g.weight(&a)?)?.add(g.param(&b)?));
        assert_eq!(sum, [Some(false), Some(false)]);
        // Views are looks at a parameter, copies out of it are reads.
        let view = writes(&params, |g, x| {
            g.weight(&a)?.reshape([2, 2])?.cont()?.reshape([4])?.cpy(x)
        });
        assert_eq!(view, [Some(false), None]);
    }

    #[test]
    fn writes_are_alone() {
        let [a, b] = ["a", "b"].map(param);
        let params = [a.clone(), b.clone()];
        let copied = writes(&params, |g, x| x.add(g.weight(&b)?)?.cpy(g.weight(&a)?));
        assert_eq!(copied, [Some(true), Some(false)]);
        let through_a_view = writes(&params, |g, x| x.cpy(g.weight(&a)?.reshape([4, 1])?));
        assert_eq!(through_a_view, [Some(true), None]);
        let in_place = writes(&params, |g, x| {
            g.weight(&b)?.scale_inplace(2.0)?.add(x)?.add(g.weight(&a)?)
        });
        assert_eq!(in_place, [Some(false), Some(true)]);
    }

    #[test]
    fn optimizers_write_what_they_step_and_their_moments() {
        let [w, m, v, grad] = ["w", "m", "v", "grad"].map(param);
        let params = [w.clone(), m.clone(), v.clone(), grad.clone()];
        let adamw = writes(&params, |g, _| {
            let (step, _) = g.input("step", F32, [AdamW::default().values(1).len()])?;
            let (m, v) = (g.weight(&m)?, g.weight(&v)?);
            g.param(&w)?.opt_step_adamw(g.weight(&grad)?, m, v, step)
        });
        assert_eq!(adamw, [Some(true), Some(true), Some(true), Some(false)]);
        let sgd = writes(&params, |g, _| {
            let (step, _) = g.input("step", F32, [2])?;
            g.param(&w)?.opt_step_sgd(g.weight(&grad)?, step)
        });
        assert_eq!(sgd, [Some(true), None, None, Some(false)]);
    }

    /// Whatever the order in which a graph takes its parameters.
    #[test]
    fn locks_are_taken_in_one_order() {
        let [a, b] = ["a", "b"].map(param);
        for (first, second) in [(&a, &b), (&b, &a)] {
            let (graph, ()) = Graph::build(|g| {
                let sum = g.weight(first)?.add(g.weight(second)?)?;
                g.output("y", sum).map(drop)
            })
            .unwrap();
            let ids = Accesses::of(&graph).0;
            let ids: Vec<_> = ids.iter().map(|access| access.storage.id()).collect();
            assert!(ids.is_sorted() && ids.len() == 2, "{ids:?}");
        }
    }
}
