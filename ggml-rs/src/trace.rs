//! What a plan dispatched to the device: the proof of which kernel ran.
//!
//! A result within tolerance does not show how it was computed. Metal devices, real and simulated, record
//! each dispatch on request: see [`RunOptions::trace`](crate::RunOptions::trace).

use std::ffi::{CStr, c_char};

use crate::device::Device;

/// One kernel dispatch of a Metal device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dispatch {
    /// The pipeline's name, with the function constants it was made with.
    pub pipeline: String,
    /// Bytes of threadgroup memory given to the dispatch.
    pub threadgroup_bytes: usize,
}

type Start = unsafe extern "C" fn();
type Stop = unsafe extern "C" fn();
type Count = unsafe extern "C" fn() -> usize;
type Get = unsafe extern "C" fn(usize, *mut c_char, usize, *mut usize) -> bool;

/// A recorder at work. It ends with this, also where a panic passes: whatever is dispatched later would be added, without end.
struct Recording(Stop);

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: a plain function of the backend, which lives as long as the process.
        unsafe { (self.0)() };
    }
}

/// The recorder of one backend. Found through the backend's registry rather than linked, because a backend
/// that was loaded as a library has a recorder of its own.
pub(crate) struct Recorder {
    start: Start,
    stop: Stop,
    count: Count,
    get: Get,
}

impl Recorder {
    /// The device's recorder, if it has one.
    pub fn of(device: Device) -> Option<Self> {
        // SAFETY: these are the names and signatures that our patch gives the Metal backend.
        unsafe {
            Some(Self {
                start: device.function::<Start>(c"ggml_metal_trace_start")?,
                stop: device.function::<Stop>(c"ggml_metal_trace_stop")?,
                count: device.function::<Count>(c"ggml_metal_trace_count")?,
                get: device.function::<Get>(c"ggml_metal_trace_get")?,
            })
        }
    }

    /// What was dispatched while `run` ran. The recorder is process-wide: no other plan may run meanwhile.
    pub fn record<T>(&self, run: impl FnOnce() -> T) -> (T, Vec<Dispatch>) {
        // SAFETY: plain functions of the backend, which lives as long as the process.
        unsafe { (self.start)() };
        let recording = Recording(self.stop);
        let outcome = run();
        drop(recording);
        // SAFETY: as above.
        let count = unsafe { (self.count)() };
        (
            outcome,
            (0..count).map_while(|index| self.dispatch(index)).collect(),
        )
    }

    fn dispatch(&self, index: usize) -> Option<Dispatch> {
        let mut name = [0; 256];
        let mut threadgroup_bytes = 0;
        // SAFETY: `name` is as long as is said, and both pointers are to live variables.
        let found =
            unsafe { (self.get)(index, name.as_mut_ptr(), name.len(), &mut threadgroup_bytes) };
        // SAFETY: the backend ends the name with a NUL within the buffer.
        let pipeline = unsafe { CStr::from_ptr(name.as_ptr()) }
            .to_string_lossy()
            .into_owned();
        found.then_some(Dispatch {
            pipeline,
            threadgroup_bytes,
        })
    }
}
