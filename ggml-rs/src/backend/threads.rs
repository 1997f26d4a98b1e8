//! Pools of threads for the CPU backend.

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use ggml_sys as sys;

use crate::device::Device;
use crate::error::{Call, Error, Result};
use crate::{guard, inside};

/// How urgent a pool's threads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Below others (Linux: SCHED_BATCH).
    Low,
    /// As the thread that makes the pool.
    #[default]
    Normal,
    /// Real-time, lowest. The system has to permit it; where it does not, ggml warns on stderr and goes on.
    Medium,
    /// Real-time.
    High,
    /// Real-time, highest.
    Realtime,
}

/// Settings of a [`ThreadPool`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadPoolOptions {
    /// How many threads compute, the one that calls [`Plan::run`](crate::Plan::run) among them: 1 to 512.
    pub threads: usize,
    /// Of the pool's own threads. The thread that calls `run` keeps its own.
    pub priority: Priority,
    /// How long idle threads wait actively before they sleep: 0 (not at all) to 100.
    pub polling: u32,
    /// The CPUs on which the pool's own threads may run, by number below 512; none means all. Not supported on macOS. A
    /// CPU that does not exist makes ggml warn on stderr and go on.
    pub cpus: Vec<usize>,
    /// Whether each thread gets one CPU of `cpus`, instead of all of them.
    pub strict: bool,
}

impl Default for ThreadPoolOptions {
    /// As many threads as the machine runs at once, of normal priority, polling 50, on all CPUs.
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism()
                .map_or(1, usize::from)
                .min(MOST),
            priority: Priority::Normal,
            polling: 50,
            cpus: Vec::new(),
            strict: false,
        }
    }
}

/// The most threads that ggml takes, and the most CPUs that it tells apart.
const MOST: usize = sys::GGML_MAX_N_THREADS as usize;
const MOST_POLLING: u32 = 100;

/// Threads that several CPU backends share.
///
/// A pool computes one graph at a time: backends that share it take turns. Each backend keeps the pool alive; its threads
/// end with the last handle. A closure of a custom op cannot run a plan on the pool that its own run computes with: that is
/// [`Error::Device`].
///
/// ```
/// use ggml_rs::{Device, ThreadPool, ThreadPoolOptions};
/// let mut options = ThreadPoolOptions::default();
/// options.threads = 2;
/// options.polling = 0;
/// let pool = ThreadPool::new(options)?;
/// let (mut first, mut second) = (Device::cpu()?.open()?, Device::cpu()?.open()?);
/// first.set_thread_pool(&pool)?;
/// second.set_thread_pool(&pool)?;
/// assert_eq!(pool.threads(), 2);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Clone)]
pub struct ThreadPool(Arc<Pool>);

struct Pool {
    ptr: NonNull<sys::ggml_threadpool>,
    device: Device,
    threads: usize,
    /// ggml's pool has one graph, one counter of chunks and one barrier, without a lock of its own.
    turn: Mutex<()>,
}

// SAFETY: the pool's state is used under `turn` alone, and freed when nobody has the pool any more.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

type New =
    unsafe extern "C-unwind" fn(*mut sys::ggml_threadpool_params) -> *mut sys::ggml_threadpool;
type Free = unsafe extern "C" fn(*mut sys::ggml_threadpool);

impl ThreadPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Error::Param`] for settings that are out of range; [`Error::Device`] when the system refuses a thread. Those that it
    /// gave have ended then.
    #[doc(alias = "ggml_threadpool_new")]
    #[track_caller]
    pub fn new(options: ThreadPoolOptions) -> Result<Self> {
        check(Call::new("ThreadPool::new"), &options)?;
        let device = Device::cpu()?;
        let threads = options.threads;
        // SAFETY: the name and signature are those of ggml-cpu.h.
        let new = unsafe { device.function::<New>(c"ggml_threadpool_new") };
        let new = new.ok_or_else(|| refused("ggml's CPU backend has no thread pools"))?;
        // ggml gives the thread that makes a pool the pool's priority and CPUs. Let that be one that ends here.
        let maker = thread::Builder::new().spawn(move || {
            let mut params = params(&options);
            // SAFETY: `params` is alive.
            let pool = guard::call("ggml_threadpool_new", || unsafe { new(&mut params) });
            pool.map(|pool| pool as usize)
        });
        let maker = maker.map_err(|error| no_thread(threads, &format!(" ({error})")))?;
        let address = match maker.join() {
            Ok(address) => address?,
            Err(_) => return Err(refused("the thread that makes it panicked")),
        };
        let ptr = NonNull::new(address as *mut sys::ggml_threadpool)
            .ok_or_else(|| no_thread(threads, ""))?;
        Ok(Self(Arc::new(Pool {
            ptr,
            device,
            threads,
            turn: Mutex::new(()),
        })))
    }

    /// How many threads compute.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ggml_threadpool {
        self.0.ptr.as_ptr()
    }

    /// Which one it is.
    pub(super) fn id(&self) -> usize {
        self.0.ptr.as_ptr() as usize
    }

    /// Waits until no other backend computes with the pool; inside of a run it does not.
    ///
    /// # Errors
    /// [`Error::Device`] inside of a run, where the pool computes.
    pub(super) fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        // The lock protects no data of Rust's, so a panic under it leaves nothing behind.
        let Some(around) = inside::run() else {
            return Ok(self.0.turn.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let remedy = "give the backend that the closure uses threads of its own";
        if around.computes_with(self.id()) {
            let detail = format!(
                "the run whose closure asks for it computes with the same threads: {remedy}"
            );
            return Err(Error::device(COMPUTE, detail));
        }
        match self.0.turn.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let detail = format!(
                    "another thread computes with it, and a closure of a custom op does not wait: try again, or {remedy}"
                );
                Err(Error::device(COMPUTE, detail))
            }
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("threads", &self.0.threads)
            .finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the name and signature are those of ggml-cpu.h. Every backend that had the pool is gone (it held a
        // handle), so no graph computes on it; it is freed once.
        unsafe {
            if let Some(free) = self.device.function::<Free>(c"ggml_threadpool_free") {
                free(self.ptr.as_ptr());
            }
        }
    }
}

const COMPUTE: &str = "compute with a shared thread pool";

fn refused(detail: impl Into<String>) -> Error {
    Error::device("start a thread pool", detail)
}

/// The error of a pool of so many threads, one of which the system refused.
fn no_thread(threads: usize, why: &str) -> Error {
    refused(format!(
        "the system refused one of the {threads} threads that were wanted{why}: ask for fewer, or raise the process's limits of \
         threads and memory"
    ))
}

fn check(call: Call, options: &ThreadPoolOptions) -> Result<()> {
    let refuse = |detail: String| Err(call.param(detail));
    if options.threads == 0 || options.threads > MOST {
        return refuse(format!(
            "{} threads; ggml takes 1 to {MOST}",
            options.threads
        ));
    }
    if options.polling > MOST_POLLING {
        return refuse(format!(
            "polling {}; it goes to {MOST_POLLING}",
            options.polling
        ));
    }
    match options.cpus.iter().find(|&&cpu| cpu >= MOST) {
        Some(cpu) => refuse(format!("CPU {cpu}; ggml counts to {}", MOST - 1)),
        None => Ok(()),
    }
}

fn params(options: &ThreadPoolOptions) -> sys::ggml_threadpool_params {
    let mut cpumask = [false; MOST];
    for &cpu in &options.cpus {
        cpumask[cpu] = true;
    }
    sys::ggml_threadpool_params {
        cpumask,
        n_threads: options.threads as c_int,
        prio: match options.priority {
            Priority::Low => sys::GGML_SCHED_PRIO_LOW,
            Priority::Normal => sys::GGML_SCHED_PRIO_NORMAL,
            Priority::Medium => sys::GGML_SCHED_PRIO_MEDIUM,
            Priority::High => sys::GGML_SCHED_PRIO_HIGH,
            Priority::Realtime => sys::GGML_SCHED_PRIO_REALTIME,
        },
        poll: options.polling,
        strict_cpu: options.strict,
        // A paused pool would give its priority and CPUs to the thread that runs the first graph.
        paused: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        let with = |change: fn(&mut ThreadPoolOptions)| {
            let mut options = ThreadPoolOptions::default();
            change(&mut options);
            ThreadPool::new(options).unwrap_err().to_string()
        };
        assert!(with(|o| o.threads = 0).contains("0 threads"));
        assert!(with(|o| o.threads = 513).contains("513 threads"));
        assert!(with(|o| o.polling = 101).contains("polling 101"));
        assert!(with(|o| o.cpus = vec![0, 512]).contains("CPU 512"));
    }

    #[test]
    fn settings_reach_ggml() {
        let options = ThreadPoolOptions {
            threads: 3,
            priority: Priority::Low,
            polling: 7,
            cpus: vec![1],
            strict: true,
        };
        let params = params(&options);
        assert_eq!((params.n_threads, params.poll), (3, 7));
        assert_eq!(params.prio, sys::GGML_SCHED_PRIO_LOW);
        assert!(params.cpumask[1] && !params.cpumask[0] && params.strict_cpu && !params.paused);
    }

    /// The thread that makes a pool keeps its CPUs: ggml would take all but one away from it.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_maker_keeps_its_cpus() {
        let allowed = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("Cpus_allowed:"));
            line.unwrap().to_owned()
        };
        let before = allowed();
        let options = ThreadPoolOptions {
            threads: 2,
            cpus: vec![0],
            ..ThreadPoolOptions::default()
        };
        let _pool = ThreadPool::new(options).unwrap();
        assert_eq!(allowed(), before);
    }
}
