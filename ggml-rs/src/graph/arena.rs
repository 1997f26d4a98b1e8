//! Memory for tensor descriptions: ggml's contexts, on memory of ours, chained before one is full.
//!
//! ggml aborts when a context is exhausted and when its own allocation fails, so neither may happen.

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

/// A chain of contexts that always has room for one more tensor.
#[derive(Default)]
pub(crate) struct Arena {
    contexts: Vec<Context>,
    /// How many tensors the last context still takes.
    room: usize,
}

impl Arena {
    /// The first context's capacity in tensors; each further one doubles it, up to a bound.
    const FIRST: usize = 64;
    const LARGEST: usize = 8192;

    /// A context with room for one tensor, which the caller now creates.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn reserve_tensor(&mut self) -> Result<*mut sys::ggml_context> {
        if self.room == 0 {
            self.grow()?;
        }
        self.room -= 1;
        self.contexts
            .last()
            .map(Context::as_ptr)
            .ok_or_else(|| Error::Internal {
                step: "reserve a tensor",
                message: "the arena is empty".into(),
            })
    }

    fn grow(&mut self) -> Result<()> {
        let capacity = Self::LARGEST.min(Self::FIRST << self.contexts.len().min(16));
        // SAFETY: a constant of ggml's, without arguments.
        let tensor = unsafe { sys::ggml_tensor_overhead() };
        self.contexts.push(Context::new(capacity * tensor)?);
        self.room = capacity;
        Ok(())
    }

    /// Keeps a context that others filled. The next tensor goes to a new one.
    pub fn adopt(&mut self, context: Context) {
        self.contexts.push(context);
        self.room = 0;
    }

    pub fn into_contexts(self) -> Vec<Context> {
        self.contexts
    }
}
