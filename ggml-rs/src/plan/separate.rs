//! A buffer for each tensor, with watched bytes behind it.

use std::ptr::NonNull;

use ggml_sys as sys;

use super::buffer::{self, Buffer};
use super::partition::Partition;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Context, node};
use crate::guard;

/// Device copies work on multiples of this, so sentinels begin at one.
const COPY_ALIGNMENT: usize = 4;

/// The memory of a plan whose tensors lie apart.
pub(super) struct Separate {
    guarded: Vec<Guarded>,
    // Holds the sentinels' descriptions.
    context: Context,
}

/// One tensor's buffer and the sentinel behind the tensor.
struct Guarded {
    name: String,
    sentinel: Option<NonNull<sys::ggml_tensor>>,
    // Holds the values of both.
    _buffer: Buffer,
}

impl Separate {
    /// Gives every tensor that is no view and no parameter a buffer on its device.
    ///
    /// # Errors
    /// [`Error::Alloc`].
    pub fn new(partition: &Partition, sentinel_bytes: usize) -> Result<Self> {
        let tensors = &partition.tensors;
        // SAFETY: a constant of ggml's, without arguments.
        let overhead = unsafe { sys::ggml_tensor_overhead() };
        let mut memory = Self {
            guarded: Vec::with_capacity(tensors.len()),
            context: Context::new(overhead * tensors.len())?,
        };
        // In this order a view's base is always placed before the view.
        for (&tensor, &home) in tensors.iter().zip(&partition.homes) {
            match kind(tensor) {
                Kind::Own => memory.place(partition.devices[home], tensor, sentinel_bytes)?,
                Kind::View => place_view(tensor)?,
                Kind::Placed => (),
            }
        }
        Ok(memory)
    }

    /// Places one tensor, and a sentinel behind it.
    fn place(
        &mut self,
        device: Device,
        tensor: NonNull<sys::ggml_tensor>,
        sentinel_bytes: usize,
    ) -> Result<()> {
        // SAFETY: the graph keeps its tensors alive.
        let name = unsafe { node::name(tensor) };
        let total = guarded_size(device, tensor, sentinel_bytes)?;
        let buffer = Buffer::new(device, device.buffer_type(), total, &name)?;
        // SAFETY: the tensor is alive, not allocated before and no view; the buffer was sized for it.
        unsafe { buffer.place(tensor, 0, &name)? };
        let sentinel = match sentinel_bytes {
            0 => None,
            len => Some(self.watch(&buffer, total - len, len)?),
        };
        self.guarded.push(Guarded {
            name,
            sentinel,
            _buffer: buffer,
        });
        Ok(())
    }

    /// Writes a sentinel of `len` bytes at `offset`.
    fn watch(
        &self,
        buffer: &Buffer,
        offset: usize,
        len: usize,
    ) -> Result<NonNull<sys::ggml_tensor>> {
        // SAFETY: the context was sized for as many tensors as the graph has.
        let sentinel = guard::call("ggml_new_tensor_1d", || unsafe {
            sys::ggml_new_tensor_1d(self.context.as_ptr(), DType::I8.raw(), len as i64)
        })?;
        let sentinel = NonNull::new(sentinel).ok_or_else(|| Error::Internal {
            step: "ggml_new_tensor_1d",
            message: "no tensor was made".into(),
        })?;
        // SAFETY: the sentinel is new, and the buffer was sized for it.
        unsafe { buffer.place(sentinel, offset, "a sentinel")? };
        write(sentinel, &pattern(len));
        Ok(sentinel)
    }

    /// Compares every sentinel with what was written to it.
    ///
    /// # Errors
    /// [`Error::Overrun`].
    pub fn check(&self) -> Result<()> {
        self.guarded.iter().try_for_each(Guarded::check)
    }
}

/// Bytes by device that [`Separate::new`] asks for.
///
/// # Errors
/// [`Error::Alloc`] for a tensor that is beyond what its device has.
pub(super) fn size(partition: &Partition, sentinel_bytes: usize) -> Result<Vec<usize>> {
    let mut bytes = vec![0_usize; partition.devices.len()];
    for (&tensor, &home) in partition.tensors.iter().zip(&partition.homes) {
        if kind(tensor) == Kind::Own {
            let device = partition.devices[home];
            let total = guarded_size(device, tensor, sentinel_bytes)?;
            buffer::check_size(device, device.buffer_type(), total, "a tensor")?;
            bytes[home] = bytes[home].saturating_add(total);
        }
    }
    Ok(bytes)
}

/// Who gives a tensor its memory.
#[derive(PartialEq, Eq)]
enum Kind {
    Own,
    View,
    /// A parameter, in its storage.
    Placed,
}

fn kind(tensor: NonNull<sys::ggml_tensor>) -> Kind {
    // SAFETY: the graph keeps its tensors alive.
    let tensor = unsafe { tensor.as_ref() };
    match () {
        () if !tensor.view_src.is_null() => Kind::View,
        () if !tensor.buffer.is_null() => Kind::Placed,
        () => Kind::Own,
    }
}

/// Bytes of a tensor and its sentinel; `usize::MAX`, which no device has, where they overflow.
fn guarded_size(
    device: Device,
    tensor: NonNull<sys::ggml_tensor>,
    sentinel_bytes: usize,
) -> Result<usize> {
    // SAFETY: the graph keeps its tensors alive; the buffer type lives as long as the device.
    let bytes = unsafe { buffer::alloc_size(device.buffer_type(), tensor)? };
    let end = bytes.checked_next_multiple_of(COPY_ALIGNMENT);
    let total = end.and_then(|end| end.checked_add(sentinel_bytes));
    Ok(total.unwrap_or(usize::MAX))
}

impl Guarded {
    fn check(&self) -> Result<()> {
        let Some(sentinel) = self.sentinel else {
            return Ok(());
        };
        let found = read(sentinel);
        let changed = |(_, (found, wanted)): &(usize, (&u8, &u8))| found != wanted;
        let wanted = pattern(found.len());
        let mut differences = found
            .iter()
            .zip(&wanted)
            .enumerate()
            .filter(changed)
            .map(|(offset, _)| offset);
        match differences.next() {
            None => Ok(()),
            Some(first) => Err(Error::Overrun {
                tensor: self.name.clone(),
                changed: 1 + differences.count(),
                len: found.len(),
                first,
            }),
        }
    }
}

/// Bytes that depend on their position, so that neither a fill nor a shifted copy leaves them unchanged.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(37) ^ (i >> 8) as u8 ^ 0xa5)
        .collect()
}

fn write(sentinel: NonNull<sys::ggml_tensor>, bytes: &[u8]) {
    // SAFETY: the sentinel is allocated and has exactly this many bytes.
    unsafe {
        sys::ggml_backend_tensor_set(sentinel.as_ptr(), bytes.as_ptr().cast(), 0, bytes.len())
    };
}

fn read(sentinel: NonNull<sys::ggml_tensor>) -> Vec<u8> {
    // SAFETY: the sentinel is alive.
    let len = unsafe { sys::ggml_nbytes(sentinel.as_ptr()) };
    let mut bytes = vec![0; len];
    // SAFETY: the sentinel is allocated and has exactly this many bytes.
    unsafe { sys::ggml_backend_tensor_get(sentinel.as_ptr(), bytes.as_mut_ptr().cast(), 0, len) };
    bytes
}

/// Points a view into its base's buffer.
fn place_view(view: NonNull<sys::ggml_tensor>) -> Result<()> {
    // SAFETY: the view is alive and not allocated before; its base is.
    let status = guard::call("ggml_backend_view_init", || unsafe {
        sys::ggml_backend_view_init(view.as_ptr())
    })?;
    if status == sys::GGML_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(buffer::refused("a view", 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fallback, Graph};

    fn separate() -> (Graph, Separate) {
        let (graph, _) = Graph::build(|g| {
            let (a, _) = g.input("a", DType::F32, [3])?;
            g.output("doubled", a.scale(2.0)?)
        })
        .unwrap();
        let devices = vec![Device::cpu().unwrap()];
        let partition = Partition::new(&graph, devices, Fallback::Forbid).unwrap();
        let memory = Separate::new(&partition, 64).unwrap();
        (graph, memory)
    }

    #[test]
    fn untouched_sentinels_pass() {
        separate().1.check().unwrap();
    }

    #[test]
    fn one_changed_byte_is_found_behind_the_right_tensor() {
        let (_graph, memory) = separate();
        let guarded = memory
            .guarded
            .iter()
            .find(|guarded| guarded.name == "doubled")
            .unwrap();
        let mut bytes = pattern(64);
        bytes[5] ^= 1;
        bytes[9] ^= 1;
        write(guarded.sentinel.unwrap(), &bytes);
        let error = memory.check().unwrap_err();
        assert_eq!(
            error,
            Error::Overrun {
                tensor: "doubled".into(),
                changed: 2,
                len: 64,
                first: 5
            }
        );
    }

    #[test]
    fn a_store_past_the_tensor_lands_in_its_sentinel() {
        let (graph, memory) = separate();
        let tensor = graph.tensors().last().unwrap();
        // SAFETY: a CPU buffer is host memory, and 4 bytes behind the tensor belong to its sentinel.
        unsafe { tensor.as_ref().data.cast::<f32>().add(3).write(0.0) };
        assert!(matches!(
            memory.check(),
            Err(Error::Overrun {
                first: 0,
                changed: 4,
                ..
            })
        ));
    }

    #[test]
    fn the_pattern_notices_fills_and_shifts() {
        let pattern = pattern(1024);
        assert!(pattern.windows(2).all(|pair| pair[0] != pair[1]));
        assert_ne!(pattern[..256], pattern[256..512]);
    }
}
