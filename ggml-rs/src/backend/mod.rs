//! Backends: the streams of work on a device, their threads, and stopping them.

mod cancel;
pub(crate) mod scheduler;
mod threads;
mod turn;

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr::{NonNull, null};
use std::thread;

use ggml_sys as sys;

pub use cancel::Cancel;
pub use scheduler::{Executor, Fallback, Scheduler};
pub use threads::{Priority, ThreadPool, ThreadPoolOptions};

use cancel::Watching;
use turn::Turn;

use crate::device::{Device, DeviceKind};
use crate::error::{Call, Error, Result};
use crate::graph::Context;
use crate::guard;
use crate::logging;
use crate::trace::{Dispatch, Recorder};

/// A stream of work on a device.
///
/// A failed compute poisons the backend, because ggml cannot tell what the device did: every later run
/// returns [`Error::Poisoned`] until a new backend is opened. Plans and their values survive.
///
/// ```
/// use ggml_rs::{Backend, Device};
/// let mut backend = Backend::new(Device::cpu()?)?;
/// backend.set_threads(2)?;
/// assert!(!backend.is_poisoned());
/// # Ok::<(), ggml_rs::Error>(())
/// ```
pub struct Backend {
    ptr: NonNull<sys::ggml_backend>,
    device: Device,
    poisoned: Option<String>,
    probe: Probe,
    /// How many threads of the CPU compute.
    threads: usize,
    /// Whether the CPU computes with ggml's reference kernels.
    reference: bool,
    /// Those threads; made before the first run that needs them. Never dropped while `ptr` can compute on it.
    pool: Option<ThreadPool>,
}

// SAFETY: a backend may be used from any thread, from one at a time, which `&mut self` ensures.
unsafe impl Send for Backend {}

impl Backend {
    /// Opens a backend on `device`. A CPU backend starts with as many threads as the machine runs at once.
    ///
    /// # Errors
    /// [`Error::Device`] when the device refuses.
    #[doc(alias = "ggml_backend_dev_init")]
    pub fn new(device: Device) -> Result<Self> {
        let _lines = logging::hold();
        let mut backend = Self {
            ptr: open(device)?,
            device,
            poisoned: None,
            probe: Probe::new()?,
            threads: 1,
            reference: false,
            pool: None,
        };
        if device.kind() == DeviceKind::Cpu {
            backend.set_threads(thread::available_parallelism().map_or(1, |n| n.get()))?;
        }
        Ok(backend)
    }

    /// The device it works on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Sets the number of CPU threads, on devices that have such a setting; others ignore it. A shared pool is given up.
    ///
    /// # Errors
    /// [`Error::Param`] unless there are 1 to 512 threads, the most that ggml takes; [`Error::Device`] when the device does
    /// not open again, after a shared pool.
    #[doc(alias = "ggml_backend_set_n_threads")]
    #[track_caller]
    pub fn set_threads(&mut self, threads: usize) -> Result<()> {
        let call = Call::new("Backend::set_threads");
        let most = sys::GGML_MAX_N_THREADS as usize;
        if threads == 0 || threads > most {
            return Err(call.param(format!("{threads} threads; ggml takes 1 to {most}")));
        }
        self.leave_pool()?;
        self.tell_threads(threads);
        Ok(())
    }

    /// Computes with the threads of `pool` from now on, which other backends may use too.
    ///
    /// # Errors
    /// [`Error::Device`] unless this is a CPU backend.
    #[doc(alias = "ggml_backend_cpu_set_threadpool")]
    pub fn set_thread_pool(&mut self, pool: &ThreadPool) -> Result<()> {
        if self.device.kind() != DeviceKind::Cpu {
            let step = format!("give a thread pool to {}", self.device.name());
            return Err(Error::device(step, "only the CPU computes with one"));
        }
        self.leave_pool()?;
        self.tell_threads(pool.threads());
        self.join_pool(pool.clone());
        Ok(())
    }

    /// Has the CPU compute with ggml's plain kernels where it has faster ones, to compare with: no tiles, no llamafile, no
    /// OUT_PROD of ours where ggml has one.
    ///
    /// # Errors
    /// [`Error::Device`] unless this is a CPU backend.
    #[doc(alias = "ggml_backend_cpu_set_use_ref")]
    pub fn set_reference(&mut self, reference: bool) -> Result<()> {
        if self.device.kind() != DeviceKind::Cpu {
            let step = format!("ask {} for reference kernels", self.device.name());
            return Err(Error::device(step, "only the CPU has them"));
        }
        self.reference = reference;
        self.tell_reference();
        Ok(())
    }

    fn tell_reference(&mut self) {
        type SetReference = unsafe extern "C" fn(sys::ggml_backend_t, bool);
        // SAFETY: the name and signature are those of ggml-cpu.h; the backend is alive, ours, and of the CPU.
        unsafe {
            if let Some(set) = self
                .device
                .function::<SetReference>(c"ggml_backend_cpu_set_use_ref")
            {
                set(self.ptr.as_ptr(), self.reference);
            }
        }
    }

    fn tell_threads(&mut self, threads: usize) {
        type SetThreads = unsafe extern "C" fn(sys::ggml_backend_t, c_int);
        self.threads = threads;
        // SAFETY: the name and signature are those of ggml-backend.h; the backend is alive and ours.
        unsafe {
            if let Some(set) = self
                .device
                .function::<SetThreads>(c"ggml_backend_set_n_threads")
            {
                set(self.ptr.as_ptr(), threads as c_int);
            }
        }
    }

    /// Forgets the pool. ggml would pause the old pool when it is given another, even while a second backend computes with
    /// it, which would then wait forever: so open ggml's backend anew instead. It holds nothing else that matters.
    fn leave_pool(&mut self) -> Result<()> {
        if self.pool.is_none() {
            return Ok(());
        }
        let fresh = open(self.device)?;
        // SAFETY: the old one came from ggml_backend_dev_init, computes nothing, and is freed once.
        unsafe { sys::ggml_backend_free(self.ptr.as_ptr()) };
        self.ptr = fresh;
        self.pool = None;
        // Only the CPU has pools.
        self.tell_reference();
        Ok(())
    }

    fn join_pool(&mut self, pool: ThreadPool) {
        type SetPool = unsafe extern "C" fn(sys::ggml_backend_t, sys::ggml_threadpool_t);
        // SAFETY: the name and signature are those of ggml-cpu.h; the backend is alive and had no pool; `self.pool` keeps
        // the pool until the backend is gone or has left it.
        unsafe {
            if let Some(set) = self
                .device
                .function::<SetPool>(c"ggml_backend_cpu_set_threadpool")
            {
                set(self.ptr.as_ptr(), pool.as_ptr());
            }
        }
        self.pool = Some(pool);
    }

    /// Makes the threads that a run needs, once. Without a pool ggml starts threads in every run, and ends the process when
    /// the system refuses one.
    fn ensure_pool(&mut self) -> Result<()> {
        if self.device.kind() != DeviceKind::Cpu || self.threads == 1 || self.pool.is_some() {
            return Ok(());
        }
        let options = ThreadPoolOptions {
            threads: self.threads,
            // Nobody knows when the next run comes.
            polling: 0,
            ..ThreadPoolOptions::default()
        };
        self.join_pool(ThreadPool::new(options)?);
        Ok(())
    }

    /// Which pool it computes with, where it is known before a run: one that others may have too.
    pub(crate) fn pool(&self) -> Option<usize> {
        self.pool.as_ref().map(ThreadPool::id)
    }

    /// How many threads of the CPU compute.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Whether an earlier compute failed.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Runs a graph to its end, and adds what was dispatched for it to `trace`.
    ///
    /// # Safety
    /// The graph must be alive, every tensor of it allocated in this device's buffers, and every node
    /// supported by the device.
    ///
    /// # Errors
    /// [`Error::Compute`], which poisons the backend; [`Error::Poisoned`] afterwards; [`Error::Cancelled`];
    /// [`Error::Device`] when the system refuses a thread, and for a shared pool that computes a run that this one is inside of.
    pub(crate) unsafe fn compute(
        &mut self,
        graph: NonNull<sys::ggml_cgraph>,
        cancel: Option<&Cancel>,
        trace: Option<&RefCell<Vec<Dispatch>>>,
    ) -> Result<()> {
        if let Some(cause) = &self.poisoned {
            return Err(Error::Poisoned {
                device: self.device.name().to_owned(),
                cause: cause.clone(),
            });
        }
        self.ensure_pool()?;
        let pool = self.pool.clone();
        let _pools_turn = match &pool {
            Some(pool) => Some(pool.turn()?),
            None => None,
        };
        let recorder = trace.and_then(|trace| Some((trace, Recorder::of(self.device)?)));
        let _devices_turn = Turn::of(self.device, recorder.is_some());
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        let _watching = cancel.and_then(|cancel| Watching::start(self, cancel));
        Fault::clear(self.device);
        // SAFETY: the caller vouches for the graph.
        let compute = || unsafe { self.status_of(graph) };
        let status = match recorder {
            None => compute(),
            Some((trace, recorder)) => {
                let (status, dispatches) = recorder.record(compute);
                trace.borrow_mut().extend(dispatches);
                status
            }
        };
        self.outcome(status)
    }

    /// # Safety
    /// As [`Backend::compute`].
    unsafe fn status_of(&self, graph: NonNull<sys::ggml_cgraph>) -> sys::ggml_status {
        // SAFETY: the caller vouches for the graph.
        let status = unsafe { sys::ggml_backend_graph_compute(self.ptr.as_ptr(), graph.as_ptr()) };
        match status {
            sys::GGML_STATUS_SUCCESS => self.late_status(),
            failed => failed,
        }
    }

    /// Metal notices a failed command buffer while it waits, after the status was decided, and reports it
    /// from the next compute on: ask with a graph of nothing.
    fn late_status(&self) -> sys::ggml_status {
        if !self.device.is_metal() {
            return sys::GGML_STATUS_SUCCESS;
        }
        // SAFETY: backend and graph are alive; the graph has no nodes.
        unsafe { sys::ggml_backend_graph_compute(self.ptr.as_ptr(), self.probe.cgraph.as_ptr()) }
    }

    /// Turns ggml's status into a result, and remembers a failure.
    fn outcome(&mut self, status: sys::ggml_status) -> Result<()> {
        if status == sys::GGML_STATUS_SUCCESS {
            return Ok(());
        }
        // Only our callback stops a graph, between nodes: nothing failed.
        if status == sys::GGML_STATUS_ABORTED {
            return Err(Error::Cancelled);
        }
        let error = Error::Compute {
            device: self.device.name().to_owned(),
            status: status_text(status),
            fault: Fault::last(self.device).or_else(logging::take_error),
        };
        self.poisoned = Some(error.to_string());
        Err(error)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // SAFETY: `ptr` came from ggml_backend_dev_init and is freed once, before its pool.
        unsafe { sys::ggml_backend_free(self.ptr.as_ptr()) };
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("device", &self.device)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

/// A new backend of ggml's.
fn open(device: Device) -> Result<NonNull<sys::ggml_backend>> {
    // SAFETY: the device lives as long as the process; no parameters is a valid argument.
    let ptr = unsafe { sys::ggml_backend_dev_init(device.as_ptr(), null()) };
    NonNull::new(ptr).ok_or_else(|| {
        let detail =
            logging::take_error().unwrap_or_else(|| "the device gives no reason".to_owned());
        Error::device(format!("open a backend on {}", device.name()), detail)
    })
}

fn status_text(status: sys::ggml_status) -> String {
    match status {
        sys::GGML_STATUS_ALLOC_FAILED => "out of memory".to_owned(),
        sys::GGML_STATUS_FAILED => "failed".to_owned(),
        other => format!("status {other}"),
    }
}

/// A graph without nodes.
struct Probe {
    cgraph: NonNull<sys::ggml_cgraph>,
    // Holds the cgraph.
    _context: Context,
}

impl Probe {
    fn new() -> Result<Self> {
        // SAFETY: a function of its arguments alone.
        let context = Context::new(unsafe { sys::ggml_graph_overhead_custom(1, false) })?;
        // SAFETY: the context was sized for this graph.
        let cgraph = guard::call("ggml_new_graph_custom", || unsafe {
            sys::ggml_new_graph_custom(context.as_ptr(), 1, false)
        })?;
        let cgraph = NonNull::new(cgraph).ok_or_else(|| Error::Internal {
            step: "ggml_new_graph_custom",
            message: "no graph was made".into(),
        })?;
        Ok(Self {
            cgraph,
            _context: context,
        })
    }
}

/// What the simulated device knows about a failure: which kernel, which lane, what it did.
struct Fault;

impl Fault {
    fn clear(device: Device) {
        type Clear = unsafe extern "C" fn();
        // SAFETY: the name and signature of the simulated device's own function.
        unsafe {
            if let Some(clear) = device.function::<Clear>(c"metal_sim_fault_clear") {
                clear();
            }
        }
    }

    fn last(device: Device) -> Option<String> {
        type Last = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: as above; the text is NUL-terminated and valid until the next fault, which cannot happen
        // while no compute runs on the device.
        let text = unsafe {
            let last = device.function::<Last>(c"metal_sim_last_fault")?;
            CStr::from_ptr(last()).to_string_lossy().into_owned()
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_poisons_the_backend() {
        let mut backend = Device::cpu().unwrap().open().unwrap();
        let error = backend.outcome(sys::GGML_STATUS_FAILED).unwrap_err();
        assert!(matches!(&error, Error::Compute { device, .. } if device == "CPU"));
        assert!(backend.is_poisoned());
        let probe = backend.probe.cgraph;
        // SAFETY: the probe is alive and has no nodes.
        let error = unsafe { backend.compute(probe, None, None) }.unwrap_err();
        assert!(
            matches!(&error, Error::Poisoned { cause, .. } if cause.contains("failed")),
            "{error}"
        );
    }

    #[test]
    fn a_cancelled_run_does_not() {
        let mut backend = Device::cpu().unwrap().open().unwrap();
        let error = backend.outcome(sys::GGML_STATUS_ABORTED).unwrap_err();
        assert_eq!(error, Error::Cancelled);
        assert!(!backend.is_poisoned());
    }

    #[test]
    fn success_does_not() {
        let mut backend = Device::cpu().unwrap().open().unwrap();
        backend.outcome(sys::GGML_STATUS_SUCCESS).unwrap();
        assert!(!backend.is_poisoned());
    }

    #[test]
    fn thread_counts_are_bounded() {
        let mut backend = Device::cpu().unwrap().open().unwrap();
        backend.set_threads(1).unwrap();
        assert!(backend.set_threads(0).is_err());
        assert!(backend.set_threads(100_000).is_err());
    }
}
