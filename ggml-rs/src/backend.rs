//! Backends: the streams of work on a device.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr::{NonNull, null};
use std::thread;

use ggml_sys as sys;

use crate::device::{Device, DeviceKind};
use crate::error::{Error, OpError, Result};
use crate::graph::Context;
use crate::guard;
use crate::logging;

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
        let probe = Probe::new()?;
        // SAFETY: the device lives as long as the process; no parameters is a valid argument.
        let ptr = unsafe { sys::ggml_backend_dev_init(device.as_ptr(), null()) };
        let ptr = NonNull::new(ptr).ok_or_else(|| {
            let detail =
                logging::take_error().unwrap_or_else(|| "the device gives no reason".to_owned());
            Error::device(format!("open a backend on {}", device.name()), detail)
        })?;
        let mut backend = Self {
            ptr,
            device,
            poisoned: None,
            probe,
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

    /// Sets the number of CPU threads, on devices that have such a setting; others ignore it.
    ///
    /// # Errors
    /// [`Error::Param`] unless there are 1 to 512 threads, the most that ggml takes.
    #[doc(alias = "ggml_backend_set_n_threads")]
    #[track_caller]
    pub fn set_threads(&mut self, threads: usize) -> Result<()> {
        type SetThreads = unsafe extern "C" fn(sys::ggml_backend_t, c_int);
        let most = sys::GGML_MAX_N_THREADS as usize;
        if threads == 0 || threads > most {
            let detail = format!("{threads} threads; ggml takes 1 to {most}");
            return Err(Error::Param(OpError::new(
                "Backend::set_threads",
                detail,
                Vec::new(),
            )));
        }
        // SAFETY: the name and signature are those of ggml-backend.h; the backend is alive and ours.
        unsafe {
            if let Some(set) = self
                .device
                .function::<SetThreads>(c"ggml_backend_set_n_threads")
            {
                set(self.ptr.as_ptr(), threads as c_int);
            }
        }
        Ok(())
    }

    /// Whether an earlier compute failed.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Where tensors for this backend are allocated.
    pub(crate) fn buffer_type(&self) -> sys::ggml_backend_buffer_type_t {
        // SAFETY: the backend is alive.
        unsafe { sys::ggml_backend_get_default_buffer_type(self.ptr.as_ptr()) }
    }

    /// Runs a graph to its end.
    ///
    /// # Safety
    /// The graph must be alive, every tensor of it allocated in this device's buffers, and every node
    /// supported by the device.
    ///
    /// # Errors
    /// [`Error::Compute`], which poisons the backend; [`Error::Poisoned`] afterwards.
    pub(crate) unsafe fn compute(&mut self, graph: NonNull<sys::ggml_cgraph>) -> Result<()> {
        if let Some(cause) = &self.poisoned {
            return Err(Error::Poisoned {
                device: self.device.name().to_owned(),
                cause: cause.clone(),
            });
        }
        Fault::clear(self.device);
        // SAFETY: the caller vouches for the graph.
        let status = unsafe { sys::ggml_backend_graph_compute(self.ptr.as_ptr(), graph.as_ptr()) };
        let status = if status == sys::GGML_STATUS_SUCCESS {
            self.late_status()
        } else {
            status
        };
        self.outcome(status)
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
        // SAFETY: `ptr` came from ggml_backend_dev_init and is freed once.
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

fn status_text(status: sys::ggml_status) -> String {
    match status {
        sys::GGML_STATUS_ALLOC_FAILED => "out of memory".to_owned(),
        sys::GGML_STATUS_FAILED => "failed".to_owned(),
        sys::GGML_STATUS_ABORTED => "aborted".to_owned(),
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
        let error = unsafe { backend.compute(probe) }.unwrap_err();
        assert!(
            matches!(&error, Error::Poisoned { cause, .. } if cause.contains("failed")),
            "{error}"
        );
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
