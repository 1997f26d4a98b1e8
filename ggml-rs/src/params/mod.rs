//! Parameters: values that outlive a graph and that several plans share.
//!
//! A [`Params`] is one block of memory on a device, a [`Param`] one tensor in it. Both are cheap to clone, and may be used
//! from any thread. A graph takes a parameter with [`Builder::param`](crate::Builder::param) (trainable) or
//! [`Builder::weight`](crate::Builder::weight) (frozen); every plan of every such graph then works on the same values.
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Params, Plan, PlanOptions};
//!
//! let device = Device::cpu()?;
//! let params = Params::builder()
//!     .tensor("w", DType::F32, [2, 1])?
//!     .tensor("count", DType::F32, [1])?
//!     .allocate(device)?;
//! let (w, count) = (params.get("w")?, params.get("count")?);
//! w.set_f32(&[2.0, 3.0])?;
//! count.zero()?;
//!
//! // y = w · x, and the number of runs is counted in a parameter.
//! let (graph, (x, y, n)) = Graph::build(|g| {
//!     let (x, x_in) = g.input("x", DType::F32, [2])?;
//!     let (one, one_in) = g.input("one", DType::F32, [1])?;
//!     let total = g.weight(&count)?;
//!     let n = one.add(total)?.cpy(total)?;
//!     Ok(((x_in, one_in), g.output("y", g.weight(&w)?.mul_mat(x)?)?, g.output("n", n)?))
//! })?;
//! let mut backend = device.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&x.0, &[1.0, 10.0])?;
//! plan.set_f32(&x.1, &[1.0])?;
//! plan.run(&mut backend)?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&y)?, [32.0]);
//! assert_eq!(plan.read_f32(&n)?, [2.0]);
//! assert_eq!(count.read_f32()?, [2.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```
//!
//! # Threads
//! Each [`Params`] has one lock. A run holds it for reading, or for writing where its graph writes a parameter (a copy into
//! one, an op in place, a step of an optimizer); reading and setting a parameter hold it too. So two plans that only read
//! run at once, and nobody ever sees values that are half written. A plan takes the locks of all its storages before it
//! starts, in one order that is the same for every plan, so plans cannot wait for each other in a circle.
//! [`Plan::run`](crate::Plan::run) waits for the locks; with [`RunOptions::try_`](crate::RunOptions::try_) a run returns
//! [`Error::Busy`](crate::Error::Busy) instead.
//!
//! A closure of a custom op is inside of a run, and never waits: it may read what that run only reads, while setting it, or
//! using what the run writes, is [`Error::Param`](crate::Error::Param), and what another thread uses at the time is [`Error::Busy`](crate::Error::Busy).

mod access;
mod integers;
mod storage;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use ggml_sys as sys;

pub(crate) use access::{Accesses, Held, Wait};
pub(crate) use storage::{Spec, Storage};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Call, Placed, Result};
use crate::graph::checked_name;
use crate::memory::zeros;
use crate::names;
use crate::quantize::{check_dequantize, dequantize_checked, quantize_in};
use crate::shape::{IntoShape, Shape};

/// Parameters that lie in one block of memory on a device, under one lock.
///
/// Memory starts as NaN bytes. A plan refuses to run while one of its parameters has no values, so set each, or
/// [`zero`](Param::zero) it.
#[derive(Clone)]
pub struct Params(Arc<Storage>);

impl Params {
    /// Lists the tensors of a new storage.
    pub fn builder() -> ParamsBuilder {
        ParamsBuilder::default()
    }

    /// The parameter of this name.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) when there is none.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<Param> {
        let call = Call::new("Params::get");
        let found = self.iter().find(|param| param.name() == name);
        found.ok_or_else(|| {
            let entries = self.0.entries().iter();
            let names = names::some(entries.map(|entry| entry.name.as_str()));
            call.param(format!(
                "no parameter is named `{name}`; the parameters are {names}"
            ))
        })
    }

    /// Every parameter, in the order of the builder.
    pub fn iter(&self) -> impl Iterator<Item = Param> + '_ {
        (0..self.0.entries().len()).map(|index| Param {
            storage: Arc::clone(&self.0),
            index,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.entries().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device on which they lie.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// Bytes of device memory, the space between the tensors included.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Sets every parameter to zero.
    ///
    /// # Errors
    /// As [`Param::zero`].
    #[track_caller]
    pub fn zero(&self) -> Result<()> {
        for param in self.iter() {
            param.zero()?;
        }
        Ok(())
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Lists the tensors of a storage before memory is asked for. See [`Params::builder`].
#[derive(Debug, Default)]
pub struct ParamsBuilder {
    specs: Vec<Spec>,
    names: HashSet<String>,
}

impl ParamsBuilder {
    /// Adds a tensor.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for an invalid shape or rows that are not whole blocks; [`Error::Param`](crate::Error::Param) for a name that is taken or
    /// that ggml cannot hold (more than 63 bytes, or a NUL).
    #[track_caller]
    pub fn tensor(mut self, name: &str, dtype: DType, shape: impl IntoShape) -> Result<Self> {
        let call = Call::new("ParamsBuilder::tensor");
        let shape = shape.into_shape()?;
        // Refuses rows that are not whole blocks, and sizes that overflow.
        crate::layout::Layout::checked_contiguous(dtype, shape).of(call)?;
        checked_name(name).of(call)?;
        if !self.names.insert(name.to_owned()) {
            return Err(call.param(format!("`{name}` is listed twice")));
        }
        self.specs.push(Spec {
            name: name.to_owned(),
            dtype,
            shape,
        });
        Ok(self)
    }

    /// Whether nothing is listed.
    pub(crate) fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Allocates everything that was listed, in one buffer on `device`. Sizes are checked first; the memory is filled with
    /// NaN bytes.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) when nothing is listed; [`Error::Alloc`](crate::Error::Alloc) when the buffer is beyond what the device has, or the
    /// device refuses.
    #[track_caller]
    pub fn allocate(self, device: Device) -> Result<Params> {
        let call = Call::new("ParamsBuilder::allocate");
        if self.specs.is_empty() {
            return Err(call.param(
                "there are no tensors to allocate: list them with ParamsBuilder::tensor first",
            ));
        }
        Ok(Params(Arc::new(Storage::new(device, self.specs)?)))
    }
}

/// One tensor of a [`Params`]: a handle that keeps the memory alive.
#[derive(Clone)]
pub struct Param {
    storage: Arc<Storage>,
    index: usize,
}

impl Param {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.entry().name
    }

    /// Its data type.
    pub fn dtype(&self) -> DType {
        self.entry().dtype
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.entry().shape
    }

    /// The device on which it lies.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// Sets it from `f32` values in ne order, rounded to its type. Waits for runs that use its storage.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless there are as many values as elements; [`Error::DType`](crate::Error::DType) for a
    /// type that f32 values do not convert to; in a closure as [`Param::set_bytes`].
    #[track_caller]
    pub fn set_f32(&self, values: &[f32]) -> Result<()> {
        let call = Call::new("Param::set_f32");
        self.check_count(call, values.len())?;
        let bytes = match self.dtype() {
            DType::F32 => Cow::Borrowed(bytemuck::cast_slice(values)),
            dtype => Cow::Owned(quantize_in(
                call,
                dtype,
                values,
                self.shape().ne()[0],
                None,
            )?),
        };
        self.put(call, &bytes)
    }

    /// Sets it from bytes of its type. Waits for runs that use its storage.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless there are as many bytes as it has. In a closure of a custom op,
    /// [`Error::Param`](crate::Error::Param) where its run uses the storage, and [`Error::Busy`](crate::Error::Busy) where another
    /// thread does.
    #[track_caller]
    pub fn set_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.put(Call::new("Param::set_bytes"), bytes)
    }

    /// Sets it for any of the public functions that do.
    fn put(&self, call: Call, bytes: &[u8]) -> Result<()> {
        let wanted = self.entry().bytes;
        if bytes.len() != wanted {
            let (given, name) = (bytes.len(), self.name());
            let detail = format!("{given} bytes for parameter `{name}` of {wanted}");
            return Err(call.shape(detail));
        }
        self.storage.write(call, self.index, bytes)
    }

    fn check_count(&self, call: Call, given: usize) -> Result<()> {
        let wanted = self.shape().elements();
        if given == wanted {
            return Ok(());
        }
        let name = self.name();
        Err(call.shape(format!(
            "{given} values for parameter `{name}` of {wanted} elements"
        )))
    }

    /// Sets every byte of it to zero, which is zero in every type.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) when the host has no memory for the zeros; else as [`Param::set_bytes`].
    #[track_caller]
    pub fn zero(&self) -> Result<()> {
        let call = Call::new("Param::zero");
        self.put(call, &zeros(self.entry().bytes, "zeros")?)
    }

    /// Reads it as `f32` in ne order, converted from its type. Waits for runs that write its storage.
    ///
    /// # Errors
    /// As [`Param::read_bytes`]; [`Error::DType`](crate::Error::DType) for a type that does not convert to f32.
    #[track_caller]
    pub fn read_f32(&self) -> Result<Vec<f32>> {
        let call = Call::new("Param::read_f32");
        check_dequantize(self.dtype(), 0).map_err(|refused| {
            call.dtype(format!("parameter `{}`: {}", self.name(), refused.detail()))
        })?;
        dequantize_checked(self.dtype(), &self.take(call)?)
    }

    /// Reads it as bytes of its type. Waits for runs that write its storage.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) before it was set. In a closure of a custom op, [`Error::Param`](crate::Error::Param)
    /// where its run writes the storage, and [`Error::Busy`](crate::Error::Busy) where another thread does.
    #[track_caller]
    pub fn read_bytes(&self) -> Result<Vec<u8>> {
        self.take(Call::new("Param::read_bytes"))
    }

    /// Reads it for any of the public functions that do.
    fn take(&self, call: Call) -> Result<Vec<u8>> {
        self.check_set(call)?;
        self.storage.read(call, self.index)
    }

    /// # Errors
    /// [`Error::Param`](crate::Error::Param) when it has no values.
    pub(crate) fn check_set(&self, call: Call) -> Result<()> {
        if self.entry().is_set() {
            return Ok(());
        }
        let detail = format!("parameter `{}` has no values: set it first", self.name());
        Err(call.param(detail))
    }

    fn entry(&self) -> &storage::Entry {
        &self.storage.entries()[self.index]
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Which tensor of which storage, so that a graph finds one that it has.
    pub(crate) fn key(&self) -> (u64, usize) {
        (self.storage.id(), self.index)
    }

    /// Makes `tensor` another description of this parameter's memory.
    ///
    /// Each graph gets a description of its own, because ggml writes to descriptions (flags, names) while it builds and
    /// plans, and graphs are built on several threads at once.
    ///
    /// # Safety
    /// `tensor` must be alive, new, contiguous, and of this type and shape; whoever owns it must keep this parameter.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) when the device refuses.
    pub(crate) unsafe fn attach(&self, tensor: NonNull<sys::ggml_tensor>) -> Result<()> {
        // SAFETY: the caller vouches for the tensor.
        unsafe { self.storage.attach(self.index, tensor) }
    }
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Param({}: {} {:?})",
            self.name(),
            self.dtype(),
            self.shape()
        )
    }
}
