//! Device memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::guard;
use crate::logging;

/// What fresh memory is filled with: NaN in every floating-point type.
const POISON: u8 = 0xff;

/// A buffer on a device.
pub(crate) struct Buffer(NonNull<sys::ggml_backend_buffer>);

impl Buffer {
    /// A poisoned buffer of this size.
    ///
    /// # Errors
    /// [`Error::Alloc`] when the size is beyond what the device has, or the device refuses.
    pub fn new(
        device: Device,
        kind: sys::ggml_backend_buffer_type_t,
        bytes: usize,
        what: &str,
    ) -> Result<Self> {
        check_size(device, kind, bytes, what)?;
        // SAFETY: the buffer type lives as long as the device.
        let buffer = guard::call("ggml_backend_buft_alloc_buffer", || unsafe {
            sys::ggml_backend_buft_alloc_buffer(kind, bytes)
        })?;
        let buffer = NonNull::new(buffer).ok_or_else(|| refused(what, bytes))?;
        poison(buffer);
        Ok(Self(buffer))
    }

    /// Its type.
    pub fn kind(&self) -> sys::ggml_backend_buffer_type_t {
        // SAFETY: the buffer is alive.
        unsafe { sys::ggml_backend_buffer_get_type(self.0.as_ptr()) }
    }

    /// Places a tensor `offset` bytes into the buffer.
    ///
    /// # Safety
    /// The tensor must be alive, not yet allocated, no view, and fit behind `offset`.
    ///
    /// # Errors
    /// [`Error::Alloc`] when the device refuses.
    pub unsafe fn place(
        &self,
        tensor: NonNull<sys::ggml_tensor>,
        offset: usize,
        what: &str,
    ) -> Result<()> {
        // SAFETY: the buffer is alive, and the caller vouches for tensor and offset.
        let status = guard::call("ggml_backend_tensor_alloc", || unsafe {
            let base: *mut c_void = sys::ggml_backend_buffer_get_base(self.0.as_ptr());
            sys::ggml_backend_tensor_alloc(self.0.as_ptr(), tensor.as_ptr(), base.byte_add(offset))
        })?;
        if status == sys::GGML_STATUS_SUCCESS {
            Ok(())
        } else {
            Err(refused(what, 0))
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is freed once. Tensors that point to it are not used again: plans free buffers
        // when they end.
        unsafe { sys::ggml_backend_buffer_free(self.0.as_ptr()) };
    }
}

/// Fills a buffer with NaN bytes.
pub(crate) fn poison(buffer: NonNull<sys::ggml_backend_buffer>) {
    // SAFETY: the buffer is alive.
    unsafe { sys::ggml_backend_buffer_clear(buffer.as_ptr(), POISON) };
}

/// Bytes that a tensor takes in buffers of this type, its scratch included.
///
/// # Safety
/// The tensor must be alive, the buffer type valid.
///
/// # Errors
/// [`Error::Internal`].
pub(crate) unsafe fn alloc_size(
    kind: sys::ggml_backend_buffer_type_t,
    tensor: NonNull<sys::ggml_tensor>,
) -> Result<usize> {
    // SAFETY: the caller vouches for both.
    guard::call("ggml_backend_buft_get_alloc_size", || unsafe {
        sys::ggml_backend_buft_get_alloc_size(kind, tensor.as_ptr())
    })
}

/// Refuses a buffer that the device cannot make, before memory is asked for.
///
/// # Errors
/// [`Error::Alloc`].
pub(crate) fn check_size(
    device: Device,
    kind: sys::ggml_backend_buffer_type_t,
    bytes: usize,
    what: &str,
) -> Result<()> {
    // SAFETY: the buffer type lives as long as the device.
    let largest = unsafe { sys::ggml_backend_buft_get_max_size(kind) };
    check_limit(device, bytes, largest, what)?;
    check_memory(device, bytes, what)
}

/// Refuses more than the host's whole memory, which the system would promise and not give. Other devices
/// answer for themselves.
///
/// # Errors
/// [`Error::Alloc`].
pub(crate) fn check_memory(device: Device, bytes: usize, what: &str) -> Result<()> {
    if device.kind() != DeviceKind::Cpu {
        return Ok(());
    }
    check_limit(device, bytes, device.memory().total, what)
}

fn check_limit(device: Device, bytes: usize, limit: usize, what: &str) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    let detail = format!("{} takes at most {limit} bytes", device.name());
    Err(Error::Alloc {
        what: what.to_owned(),
        bytes,
        detail,
    })
}

/// The error of an allocation that the device refused.
pub(crate) fn refused(what: &str, bytes: usize) -> Error {
    let detail = logging::take_error().unwrap_or_else(|| "the device refused".to_owned());
    Error::Alloc {
        what: what.to_owned(),
        bytes,
        detail,
    }
}
