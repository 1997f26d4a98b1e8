//! Stopping a run from another thread.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml_sys as sys;

use super::Backend;

/// A switch that stops a run: [`RunOptions::cancel`](crate::RunOptions::cancel).
///
/// Clones are the same switch. The run ends between two nodes on the CPU, and between groups of nodes on other devices; a
/// node that has begun is finished. A cancelled run returns [`Error::Cancelled`](crate::Error::Cancelled).
///
/// ```
/// use ggml_rs::{Cancel, DType, Device, Error, Graph, Plan, PlanOptions, RunOptions};
///
/// let (graph, (x, y)) = Graph::build(|g| {
///     let (x, x_in) = g.input("x", DType::F32, [4])?;
///     Ok((x_in, g.output("y", x.scale(2.0)?)?))
/// })?;
/// let mut backend = Device::cpu()?.open()?;
/// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
/// plan.set_f32(&x, &[1.0; 4])?;
///
/// let cancel = Cancel::new();
/// let from_elsewhere = cancel.clone();
/// std::thread::spawn(move || from_elsewhere.cancel()).join().unwrap();
/// let options = RunOptions { cancel: Some(&cancel), ..RunOptions::default() };
/// assert_eq!(plan.run_with(&mut backend, options), Err(Error::Cancelled));
///
/// cancel.reset();
/// plan.run_with(&mut backend, options)?;
/// assert_eq!(plan.read_f32(&y)?, [2.0; 4]);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A switch that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops every run that watches this switch, and every later one until [`reset`](Self::reset).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Turns it off again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether it is on.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

type SetCallback = unsafe extern "C" fn(sys::ggml_backend_t, sys::ggml_abort_callback, *mut c_void);

/// A backend that watches a switch, until this is dropped.
pub(super) struct Watching<'a> {
    backend: sys::ggml_backend_t,
    set: SetCallback,
    // ggml has a pointer to it.
    _cancel: &'a Cancel,
}

impl<'a> Watching<'a> {
    /// Installs the callback; `None` on backends that look at none.
    ///
    /// Metal's callback is not used: with one thread that encodes, ggml's default, it is never asked, and with more it
    /// leaves the backend in error. Plans cut the graph into parts instead.
    pub fn start(backend: &Backend, cancel: &'a Cancel) -> Option<Self> {
        // SAFETY: the name and signature are those of ggml-backend.h.
        let set = unsafe {
            backend
                .device
                .function::<SetCallback>(c"ggml_backend_set_abort_callback")
        }?;
        let backend = backend.ptr.as_ptr();
        let flag: *const AtomicBool = Arc::as_ptr(&cancel.0);
        // SAFETY: the backend is alive; the flag is kept alive by `_cancel`, and Drop takes the callback away.
        unsafe { set(backend, Some(is_cancelled), flag.cast_mut().cast()) };
        Some(Self {
            backend,
            set,
            _cancel: cancel,
        })
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // SAFETY: the backend outlives this guard, which lives within one compute.
        unsafe { (self.set)(self.backend, None, null_mut()) };
    }
}

/// ggml asks this between nodes. It runs nothing that could panic, so nothing can unwind into ggml.
unsafe extern "C-unwind" fn is_cancelled(flag: *mut c_void) -> bool {
    // SAFETY: `Watching` keeps the flag alive while the callback is installed.
    unsafe { &*flag.cast::<AtomicBool>() }.load(Ordering::Acquire)
}
