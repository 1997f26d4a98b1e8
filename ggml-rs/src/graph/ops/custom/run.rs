//! Between ggml's threads and closures.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ggml_sys as sys;

use super::Tasks;
use super::task::{CustomInput, CustomTask, share};
use crate::inside::{self, Run};
use crate::layout::Layout;

type Closure = dyn for<'t> Fn(&mut CustomTask<'t>) + Send + Sync;

/// A closure, and what came of its calls. A graph owns those of its nodes.
pub(crate) struct CustomOp {
    closure: Box<Closure>,
    tasks: Tasks,
    /// The result is the first operand's memory.
    in_place: bool,
    /// The first panic since it was last asked for.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The run that calls the closure.
    run: Mutex<Option<Arc<Run>>>,
}

impl CustomOp {
    pub fn new(closure: Box<Closure>, tasks: Tasks, in_place: bool) -> Self {
        Self {
            closure,
            tasks,
            in_place,
            panic: Mutex::default(),
            run: Mutex::default(),
        }
    }

    /// What ggml calls the number of tasks. It calls on all threads that it has, whatever this is.
    pub fn raw_tasks(&self) -> c_int {
        match self.tasks {
            Tasks::One => 1,
            Tasks::Threads => sys::GGML_N_TASKS_MAX,
        }
    }

    /// The panic of a call, once.
    pub fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Says which run calls the closure from now on.
    pub fn set_run(&self, run: Option<Arc<Run>>) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = run;
    }

    /// One call by one of `count` threads.
    ///
    /// # Safety
    /// As [`custom`].
    unsafe fn call(&self, dst: *mut sys::ggml_tensor, index: usize, count: usize) {
        let (index, count) = match self.tasks {
            Tasks::One if index > 0 => return,
            Tasks::One => (0, 1),
            Tasks::Threads => (index, count),
        };
        let run = self
            .run
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let _inside = inside::enter(run);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller vouches for the tensor.
            if let Some(mut task) = unsafe { task(dst, index, count, self.in_place) } {
                (self.closure)(&mut task);
            }
        }));
        if let Err(payload) = outcome {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match *first {
                None => *first = Some(payload),
                // Dropping it could panic again, here where nothing catches it.
                Some(_) => std::mem::forget(payload),
            }
        }
    }
}

/// The part of the result that is this task's, and the operands; `None` for a task without rows.
///
/// # Safety
/// As [`custom`]. The references must not outlive the call.
unsafe fn task<'a>(
    dst: *mut sys::ggml_tensor,
    index: usize,
    count: usize,
    in_place: bool,
) -> Option<CustomTask<'a>> {
    // SAFETY: the caller vouches for the tensor and its operands.
    let (layout, tensor) = unsafe { (Layout::of(dst).ok()?, &*dst) };
    let rows = share(layout.shape().rows(), index, count);
    if rows.is_empty() {
        return None;
    }
    let row_bytes = layout.ne[0] / layout.dtype.block_len() * layout.dtype.block_bytes();
    // SAFETY: the result is contiguous (constructors and the CPU's table see to it) and in the CPU's memory, which is
    // initialized; these rows are no other task's, and nobody else uses the result while its node is computed.
    let out = unsafe {
        let start = tensor.data.cast::<u8>().add(rows.start * row_bytes);
        std::slice::from_raw_parts_mut(start, rows.len() * row_bytes)
    };
    let operands = tensor.src.iter().take_while(|source| !source.is_null());
    let inputs = operands
        .skip(usize::from(in_place))
        // SAFETY: as the function's.
        .map(|&source| unsafe { input(source) })
        .collect::<Option<_>>()?;
    Some(CustomTask {
        layout,
        rows,
        out,
        inputs,
        index,
        count,
    })
}

/// # Safety
/// The tensor must be alive, allocated in the CPU's memory, and written by nobody as long as the references live.
unsafe fn input<'a>(source: *const sys::ggml_tensor) -> Option<CustomInput<'a>> {
    // SAFETY: the caller vouches for the tensor; its memory reaches to the end of its last element.
    unsafe {
        let layout = Layout::of(source).ok()?;
        let bytes = std::slice::from_raw_parts((*source).data.cast::<u8>(), layout.extent()?);
        Some(CustomInput { layout, bytes })
    }
}

/// What ggml calls for a node of [`sys::ggml_custom_4d`] or [`sys::ggml_custom_inplace`].
///
/// # Safety
/// `userdata` must be the node's [`CustomOp`], alive; `dst` the node, contiguous, it and its operands allocated in the CPU's
/// memory, and no operand but the first of an op in place sharing memory with the result; `ith` and `nth` those of ggml's
/// threads, each of which calls once.
pub(super) unsafe extern "C-unwind" fn custom(
    dst: *mut sys::ggml_tensor,
    ith: c_int,
    nth: c_int,
    userdata: *mut c_void,
) {
    // SAFETY: the caller vouches for both. ggml's counts are not negative.
    unsafe { (*userdata.cast::<CustomOp>()).call(dst, ith as usize, nth as usize) };
}

/// What ggml calls for a node of [`sys::ggml_map_custom1`]: the operand is among those of `dst`.
///
/// # Safety
/// As [`custom`].
pub(super) unsafe extern "C-unwind" fn custom1(
    dst: *mut sys::ggml_tensor,
    _a: *const sys::ggml_tensor,
    ith: c_int,
    nth: c_int,
    userdata: *mut c_void,
) {
    // SAFETY: as the function's.
    unsafe { custom(dst, ith, nth, userdata) };
}

/// What ggml calls for a node of [`sys::ggml_map_custom2`].
///
/// # Safety
/// As [`custom`].
pub(super) unsafe extern "C-unwind" fn custom2(
    dst: *mut sys::ggml_tensor,
    _a: *const sys::ggml_tensor,
    _b: *const sys::ggml_tensor,
    ith: c_int,
    nth: c_int,
    userdata: *mut c_void,
) {
    // SAFETY: as the function's.
    unsafe { custom(dst, ith, nth, userdata) };
}

/// What ggml calls for a node of [`sys::ggml_map_custom3`].
///
/// # Safety
/// As [`custom`].
pub(super) unsafe extern "C-unwind" fn custom3(
    dst: *mut sys::ggml_tensor,
    _a: *const sys::ggml_tensor,
    _b: *const sys::ggml_tensor,
    _c: *const sys::ggml_tensor,
    ith: c_int,
    nth: c_int,
    userdata: *mut c_void,
) {
    // SAFETY: as the function's.
    unsafe { custom(dst, ith, nth, userdata) };
}
