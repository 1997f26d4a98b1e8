//! The memory of parameters: a buffer, the tensors in it, and the lock over their values.

use std::fmt;
use std::ptr::NonNull;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ggml_sys as sys;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Call, Error, Result};
use crate::graph::Context;
use crate::guard;
use crate::plan::buffer::{self, Buffer};
use crate::shape::Shape;

use super::access::Wait;

/// What a storage will hold.
#[derive(Debug)]
pub(crate) struct Spec {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
}

/// One tensor of a storage.
pub(crate) struct Entry {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    /// Of values, without padding.
    pub bytes: usize,
    /// Where it begins in the buffer.
    offset: usize,
    /// Only for reading and setting values from the host; never part of a graph.
    tensor: NonNull<sys::ggml_tensor>,
    set: AtomicBool,
}

impl Entry {
    /// Whether it ever got values.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }
}

/// A buffer full of parameters.
pub(crate) struct Storage {
    /// The global order in which locks are taken.
    id: u64,
    device: Device,
    bytes: usize,
    entries: Vec<Entry>,
    /// Over the values. It protects no data of Rust's, so a panic under it leaves nothing behind.
    lock: RwLock<()>,
    buffer: Buffer,
    // Holds the entries' tensors.
    _context: Context,
}

// SAFETY: a storage owns its context and buffer, and ggml ties neither to a thread.
unsafe impl Send for Storage {}
// SAFETY: descriptions are not written after `new`. Values are written under the write lock and read under the lock; the
// plans whose graphs use them hold it too (`access`).
unsafe impl Sync for Storage {}

impl Storage {
    /// # Errors
    /// [`Error::Alloc`].
    pub fn new(device: Device, specs: Vec<Spec>) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // SAFETY: a constant of ggml's, without arguments.
        let overhead = unsafe { sys::ggml_tensor_overhead() };
        let context = Context::new(overhead.saturating_mul(specs.len()))?;
        let kind = device.buffer_type();
        let mut end = 0;
        let entries = specs
            .into_iter()
            .map(|spec| entry(&context, kind, spec, &mut end))
            .collect::<Result<Vec<_>>>()?;
        let what = format!("{} parameters", entries.len());
        let buffer = Buffer::new(device, kind, end, &what)?;
        for entry in &entries {
            // SAFETY: the tensor is new and no view; the buffer was sized for it at this offset.
            unsafe { buffer.place(entry.tensor, entry.offset, &entry.name)? };
        }
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            bytes: end,
            entries,
            lock: RwLock::new(()),
            buffer,
            _context: context,
        })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn lock(&self) -> &RwLock<()> {
        &self.lock
    }

    pub fn buffer_type(&self) -> sys::ggml_backend_buffer_type_t {
        self.buffer.kind()
    }

    /// Sets a tensor's values; `bytes` are exactly its bytes.
    ///
    /// # Errors
    /// As [`Storage::hold`].
    pub fn write(&self, call: Call, index: usize, bytes: &[u8]) -> Result<()> {
        let entry = &self.entries[index];
        assert_eq!(bytes.len(), entry.bytes, "checked by the caller");
        let _alone = self.hold(call, true, Wait::Yes)?;
        // SAFETY: the tensor is allocated and has exactly this many bytes; nothing else uses them under this lock.
        unsafe {
            sys::ggml_backend_tensor_set(
                entry.tensor.as_ptr(),
                bytes.as_ptr().cast(),
                0,
                bytes.len(),
            );
        }
        entry.set.store(true, Ordering::Release);
        Ok(())
    }

    /// A tensor's values.
    ///
    /// # Errors
    /// As [`Storage::hold`].
    pub fn read(&self, call: Call, index: usize) -> Result<Vec<u8>> {
        let entry = &self.entries[index];
        let mut bytes = vec![0; entry.bytes];
        let _shared = self.hold(call, false, Wait::Yes)?;
        // SAFETY: the tensor is allocated and has exactly this many bytes; nothing writes them under this lock.
        unsafe {
            sys::ggml_backend_tensor_get(
                entry.tensor.as_ptr(),
                bytes.as_mut_ptr().cast(),
                0,
                bytes.len(),
            );
        }
        Ok(bytes)
    }

    /// # Safety
    /// As `Param::attach`.
    ///
    /// # Errors
    /// [`Error::Alloc`] when the device refuses.
    pub unsafe fn attach(&self, index: usize, tensor: NonNull<sys::ggml_tensor>) -> Result<()> {
        let entry = &self.entries[index];
        // SAFETY: the caller vouches for the tensor; the buffer has room for its type and shape at this offset.
        unsafe { self.buffer.place(tensor, entry.offset, &entry.name) }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage")
            .field("device", &self.device)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Describes a tensor and gives it the next place in the buffer.
fn entry(
    context: &Context,
    kind: sys::ggml_backend_buffer_type_t,
    spec: Spec,
    end: &mut usize,
) -> Result<Entry> {
    let ne = spec.shape.ne().map(|n| n as i64);
    // SAFETY: the context was sized for every spec; `ne` has four entries whose product was checked.
    let tensor = guard::call("ggml_new_tensor", || unsafe {
        sys::ggml_new_tensor(context.as_ptr(), spec.dtype.raw(), 4, ne.as_ptr())
    })?;
    let tensor = NonNull::new(tensor).ok_or_else(|| Error::Internal {
        step: "ggml_new_tensor",
        message: "no tensor was made".into(),
    })?;
    // SAFETY: the tensor is alive, the buffer type lives as long as the device.
    let (bytes, alignment) = unsafe {
        (
            buffer::alloc_size(kind, tensor)?,
            sys::ggml_backend_buft_get_alignment(kind),
        )
    };
    let offset = *end;
    let next = offset
        .checked_add(bytes)
        .and_then(|end| end.checked_next_multiple_of(alignment.max(1)))
        .filter(|&end| end <= isize::MAX as usize);
    *end = next.ok_or_else(|| Error::Alloc {
        what: "parameters".into(),
        bytes: usize::MAX,
        detail: "the sum of the parameters' sizes overflows".into(),
    })?;
    Ok(Entry {
        bytes: spec.shape.bytes(spec.dtype)?,
        name: spec.name,
        dtype: spec.dtype,
        shape: spec.shape,
        offset,
        tensor,
        set: AtomicBool::new(false),
    })
}
