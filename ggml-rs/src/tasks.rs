//! Work shared among threads, as many as the system gives.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Result;

/// How many threads the machine runs at once.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Does `work` with every part, on up to `threads` threads, the calling one among them. A thread that the system refuses is
/// done without.
///
/// # Errors
/// The first error that a thread meets; the others finish the parts that are left.
pub(crate) fn share<P: Send>(
    threads: usize,
    parts: impl Iterator<Item = P> + Send,
    work: impl Fn(P) -> Result<()> + Sync,
) -> Result<()> {
    let parts = Mutex::new(parts);
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let until_none_is_left = || {
        while let Some(part) = next() {
            work(part)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, until_none_is_left);
        let helpers: Vec<_> = (1..threads).map_while(|i| start(i).ok()).collect();
        let own = until_none_is_left();
        helpers.into_iter().fold(own, |done, helper| {
            let helped = helper.join().unwrap_or_else(|panic| resume_unwind(panic));
            done.and(helped)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    #[test]
    fn every_part_is_done_once_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let mut done = [0; 40];
            share(threads, done.iter_mut().enumerate(), |(i, part)| {
                *part += i;
                Ok(())
            })
            .unwrap();
            assert!(done.iter().copied().eq(0..40), "{threads}: {done:?}");
        }
    }

    #[test]
    fn an_error_is_passed_on() {
        let seen = AtomicUsize::new(0);
        let outcome = share(3, 0..100, |i| {
            seen.fetch_add(1, Ordering::Relaxed);
            if i == 50 {
                Err(Error::Cancelled)
            } else {
                Ok(())
            }
        });
        assert_eq!(outcome, Err(Error::Cancelled));
        assert!(seen.into_inner() > 50);
    }
}
