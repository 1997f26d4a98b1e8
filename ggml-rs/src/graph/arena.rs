//! Memory for tensor descriptions: ggml's contexts, on memory of ours, chained before one is full.
//!
//! ggml aborts when a context is exhausted and when its own allocation fails, so neither may happen.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::error::{Error, Result};

/// ggml aligns what it places in a context to 16 bytes, and asserts that the context begins so.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Chunk {
    _bytes: [MaybeUninit<u8>; 16],
}

/// A ggml context that holds descriptions, never values.
pub(crate) struct Context {
    ptr: NonNull<sys::ggml_context>,
    // ggml writes to this memory through `ptr`; it is only held here.
    _memory: Vec<Chunk>,
}

impl Context {
    /// A context with room for `bytes`, counted by ggml's own overhead functions.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn new(bytes: usize) -> Result<Self> {
        let alloc = |detail: String| Error::Alloc {
            what: "tensor descriptions".into(),
            bytes,
            detail,
        };
        let chunks = bytes.div_ceil(size_of::<Chunk>()).max(1);
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(chunks)
            .map_err(|error| alloc(error.to_string()))?;
        let params = sys::ggml_init_params {
            mem_size: chunks * size_of::<Chunk>(),
            mem_buffer: memory.spare_capacity_mut().as_mut_ptr().cast(),
            no_alloc: true,
        };
        // SAFETY: `mem_buffer` is valid for `mem_size` bytes, aligned to 16, and outlives the context, which
        // is freed in our Drop before the memory is. Not under `guard::call`: ggml_init holds ggml's lock,
        // and with a buffer given it has nothing left to assert.
        let ptr = unsafe { sys::ggml_init(params) };
        let ptr = NonNull::new(ptr).ok_or_else(|| alloc("ggml_init failed".into()))?;
        Ok(Self {
            ptr,
            _memory: memory,
        })
    }

    pub fn as_ptr(&self) -> *mut sys::ggml_context {
        self.ptr.as_ptr()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `ptr` came from ggml_init and is freed once.
        unsafe { sys::ggml_free(self.ptr.as_ptr()) };
    }
}

thread_local! {
    /// How many tensors the arena held that this thread finished last: a graph that is built again gets one context, of its
    /// size, and the allocator finds the memory of the one before.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// A chain of contexts that always has room for one more tensor.
#[derive(Default)]
pub(crate) struct Arena {
    contexts: Vec<Context>,
    /// How many tensors the last context still takes.
    room: usize,
    /// How many tensors our own contexts take in all.
    capacity: usize,
}

impl Arena {
    /// The first context's capacity in tensors, where nothing else is known; each further one doubles the arena, up to a bound.
    const FIRST: usize = 64;
    const LARGEST: usize = 8192;

    /// A context with room for one tensor, which the caller now creates.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    #[inline]
    pub fn reserve_tensor(&mut self) -> Result<*mut sys::ggml_context> {
        if self.room == 0 {
            self.grow()?;
        }
        match self.contexts.last() {
            Some(context) => {
                self.room -= 1;
                Ok(context.as_ptr())
            }
            None => Err(Error::Internal {
                step: "reserve a tensor",
                message: "the arena is empty".into(),
            }),
        }
    }

    #[cold]
    fn grow(&mut self) -> Result<()> {
        let wanted = match self.capacity {
            0 => LAST.get(),
            capacity => capacity,
        };
        let capacity = wanted.clamp(Self::FIRST, Self::LARGEST);
        // SAFETY: a constant of ggml's, without arguments.
        let tensor = unsafe { sys::ggml_tensor_overhead() };
        self.contexts.push(Context::new(capacity * tensor)?);
        self.room = capacity;
        self.capacity += capacity;
        Ok(())
    }

    pub fn into_contexts(self) -> Vec<Context> {
        LAST.set(self.capacity - self.room);
        self.contexts
    }
}
