//! The runs that a thread is inside of. ggml calls the closures of custom ops, on threads of its own, in the middle of a run,
//! and closures may use this crate: run other plans, read parameters.
//!
//! A closure must wait neither for the run that it is part of, nor for a run whose closure waits for this one. So every run
//! tells its closures what it holds, and inside of one nothing waits for another run: what the runs around it read may be read
//! without a lock, what they hold otherwise is an error, and so is what another thread holds.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static RUN: RefCell<Option<Arc<Run>>> = const { RefCell::new(None) };
}

/// What a run holds until it has ended.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Of parameters: a storage's id, and whether the run writes it.
    pub storages: Vec<(u64, bool)>,
    /// Pools of threads, by address.
    pub pools: Vec<usize>,
    /// The run of whose closure this one was started.
    pub around: Option<Arc<Run>>,
}

/// How the runs around use a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Reads,
    Writes,
}

/// The run that this thread is inside of. A thread that is being torn down is inside of none.
pub(crate) fn run() -> Option<Arc<Run>> {
    RUN.try_with(|run| run.borrow().clone()).ok().flatten()
}

/// This thread is inside of `run`, until the result is dropped.
pub(crate) fn enter(run: Option<Arc<Run>>) -> Inside {
    let around = RUN.try_with(|current| current.replace(run)).ok().flatten();
    Inside { around }
}

/// See [`enter`].
pub(crate) struct Inside {
    around: Option<Arc<Run>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let around = self.around.take();
        let _ = RUN.try_with(|current| current.replace(around));
    }
}

impl Run {
    /// What this run and those around it do with a storage.
    pub fn use_of(&self, storage: u64) -> Option<Use> {
        let uses = self.and_around().flat_map(|run| &run.storages);
        uses.filter(|&&(id, _)| id == storage)
            .map(|&(_, writes)| if writes { Use::Writes } else { Use::Reads })
            .reduce(|a, b| if a == Use::Writes { a } else { b })
    }

    /// Whether this run or one around it computes with a pool.
    pub fn computes_with(&self, pool: usize) -> bool {
        self.and_around().any(|run| run.pools.contains(&pool))
    }

    fn and_around(&self) -> impl Iterator<Item = &Run> {
        std::iter::successors(Some(self), |run| run.around.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_knows_what_those_around_it_hold() {
        let outer = Run {
            storages: vec![(1, true), (2, false)],
            pools: vec![7],
            around: None,
        };
        let inner = Run {
            storages: vec![(1, false), (3, false)],
            pools: vec![8],
            around: Some(Arc::new(outer)),
        };
        let uses = [1, 2, 3, 4].map(|id| inner.use_of(id));
        let (reads, writes) = (Some(Use::Reads), Some(Use::Writes));
        assert_eq!(uses, [writes, reads, reads, None]);
        assert_eq!(
            [7, 8, 9].map(|pool| inner.computes_with(pool)),
            [true, true, false]
        );
    }

    #[test]
    fn a_thread_leaves_a_run_for_the_one_around_it() {
        assert!(run().is_none());
        let outer = Arc::new(Run::default());
        let first = enter(Some(Arc::clone(&outer)));
        let second = enter(Some(Arc::default()));
        assert!(!Arc::ptr_eq(&run().unwrap(), &outer));
        drop(second);
        assert!(Arc::ptr_eq(&run().unwrap(), &outer));
        assert!(std::thread::spawn(|| run().is_none()).join().unwrap());
        drop(first);
        assert!(run().is_none());
    }
}
