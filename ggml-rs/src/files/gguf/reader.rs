//! Files whose header was read and whose tensors are read on demand.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Call, Result};
use crate::files::gguf::header::Header;
use crate::files::gguf::metadata::Metadata;
use crate::files::gguf::options::ReadOptions;
use crate::files::gguf::parse;
use crate::files::info::TensorInfo;
use crate::files::load::Values;
use crate::params::Params;

/// A GGUF file: its header, checked, and the source from which tensors are read.
///
/// Files are not mapped to memory: another program that truncates a mapped file ends the process, which safe code must not be able to.
#[derive(Debug)]
pub struct Gguf<R = File> {
    header: Header,
    values: Values<R>,
}

impl Gguf<File> {
    /// Opens a file and reads its header, within the usual limits ([`ReadOptions::default`]).
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when the file cannot be read, or for what is wrong with it;
    /// [`Error::Alloc`](crate::Error::Alloc) when the host has no memory for the header.
    #[doc(alias = "gguf_init_from_file")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, ReadOptions::default())
    }

    /// Opens a file and reads its header, within these limits.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn open_with(path: impl AsRef<Path>, options: ReadOptions) -> Result<Self> {
        let (header, values) = Values::open(path.as_ref(), |file| parse::header(file, options))?;
        Ok(Self { header, values })
    }
}

impl<R: Read + Seek> Gguf<R> {
    /// Reads the header of a source that begins with a file, within the usual limits ([`ReadOptions::default`]).
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when the source cannot be read, or for what is wrong with the file;
    /// [`Error::Alloc`](crate::Error::Alloc) when the host has no memory for the header.
    #[doc(alias = "gguf_init_from_buffer")]
    pub fn read(source: R) -> Result<Self> {
        Self::read_with(source, ReadOptions::default())
    }

    /// Reads the header of a source that begins with a file, within these limits.
    ///
    /// # Errors
    /// As [`Gguf::read`].
    pub fn read_with(source: R, options: ReadOptions) -> Result<Self> {
        let (header, values) = Values::read(source, |source| parse::header(source, options))?;
        Ok(Self { header, values })
    }

    /// Everything but the values.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The keys and their values.
    pub fn metadata(&self) -> &Metadata {
        self.header.metadata()
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        self.header.tensors()
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when there is none.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.header
            .tensor(name)
            .map_err(|error| self.values.named(error))
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when there is none of this name, or reading fails;
    /// [`Error::Alloc`](crate::Error::Alloc) when the host has no memory.
    pub fn read_bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        self.values.read_bytes(&self.header, name)
    }

    /// The values of a tensor as `f32`, converted from its type.
    ///
    /// # Errors
    /// As [`Gguf::read_bytes`], and [`Error::DType`](crate::Error::DType) for a type that does not convert to f32.
    #[track_caller]
    pub fn read_f32(&mut self, name: &str) -> Result<Vec<f32>> {
        let call = Call::new("Gguf::read_f32");
        self.values.read_f32(call, &self.header, name)
    }

    /// The values of an I32 tensor.
    ///
    /// # Errors
    /// As [`Gguf::read_bytes`], and [`Error::DType`](crate::Error::DType) for another type.
    #[track_caller]
    pub fn read_i32(&mut self, name: &str) -> Result<Vec<i32>> {
        let call = Call::new("Gguf::read_i32");
        self.values
            .read_integers(call, &self.header, name, DType::I32)
    }

    /// The values of an I64 tensor.
    ///
    /// # Errors
    /// As [`Gguf::read_i32`].
    #[track_caller]
    pub fn read_i64(&mut self, name: &str) -> Result<Vec<i64>> {
        let call = Call::new("Gguf::read_i64");
        self.values
            .read_integers(call, &self.header, name, DType::I64)
    }

    /// Replaces what is in `to` by the bytes of a tensor. For many tensors one vector serves.
    ///
    /// # Errors
    /// As [`Gguf::read_bytes`].
    pub fn read_into(&mut self, name: &str, to: &mut Vec<u8>) -> Result<()> {
        self.values.read_into(&self.header, name, to)
    }

    /// Every tensor, as parameters on a device. They are read one by one.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when reading fails; [`Error::Param`](crate::Error::Param) for a file without tensors;
    /// [`Error::Alloc`](crate::Error::Alloc) when the device or the host has no memory.
    #[track_caller]
    pub fn load(&mut self, device: Device) -> Result<Params> {
        let call = Call::new("Gguf::load");
        self.values.load_where(call, &self.header, device, |_| true)
    }

    /// The tensors for which `wanted` says so, as parameters on a device.
    ///
    /// # Errors
    /// As [`Gguf::load`]; [`Error::Param`](crate::Error::Param) when nothing is wanted.
    #[track_caller]
    pub fn load_where(
        &mut self,
        device: Device,
        wanted: impl FnMut(&TensorInfo) -> bool,
    ) -> Result<Params> {
        let call = Call::new("Gguf::load_where");
        self.values.load_where(call, &self.header, device, wanted)
    }

    /// Sets parameters that exist from the tensors of their names. Other tensors of the file are left alone.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when a parameter has no tensor, or one of another type or shape; then no parameter was set.
    /// Also when reading fails, where some may have been.
    pub fn load_into(&mut self, params: &Params) -> Result<()> {
        self.values.load_into(&self.header, params)
    }

    /// What the tensors are read from.
    pub fn into_inner(self) -> R {
        self.values.into_inner()
    }
}
