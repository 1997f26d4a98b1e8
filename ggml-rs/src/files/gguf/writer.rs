//! Making files: what is in them is listed, then the values are written one tensor at a time.

use std::collections::HashSet;
use std::io::Write;

use crate::dtype::DType;
use crate::error::{Call, Placed, Result};
use crate::files::error::{Fault, FileError, Place};
use crate::files::gguf::metadata::Metadata;
use crate::files::gguf::value::{Bytes, Value, encode_text};
use crate::files::gguf::{ALIGNMENT_KEY, MAGIC, MAX_NAME, VERSION};
use crate::files::info::TensorInfo;
use crate::params::Param;
use crate::quantize::quantize_in;
use crate::shape::IntoShape;

/// Lists what will be in a file: keys with their values, and tensors.
#[doc(alias = "gguf_init_empty")]
#[derive(Debug, Clone, Default)]
pub struct Builder {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    names: HashSet<String>,
}

impl Builder {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. Its type is that of the value: `7_u32` makes a u32, `vec![0.5_f32]` an array of f32.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) for a key that is empty, too long or taken, arrays nested too deep, and an alignment that is not one.
    #[doc(alias = "gguf_set_val_u32")]
    #[doc(alias = "gguf_set_val_str")]
    #[doc(alias = "gguf_set_val_f32")]
    #[doc(alias = "gguf_set_arr_data")]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Result<Self> {
        match self.metadata.insert(key, value.into()) {
            Ok(()) => Ok(self),
            Err(fault) => Err(FileError::key(key, fault)),
        }
    }

    /// Adds every key of another file's metadata, in its order.
    ///
    /// # Errors
    /// As [`Builder::set`].
    #[doc(alias = "gguf_set_kv")]
    pub fn set_all(self, metadata: &Metadata) -> Result<Self> {
        let mut entries = metadata.iter();
        entries.try_fold(self, |builder, (key, value)| {
            builder.set(key, value.clone())
        })
    }

    /// Sets the alignment of tensors, which is 32 otherwise.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) unless it is a power of two up to [`MAX_ALIGNMENT`](super::MAX_ALIGNMENT), set once.
    pub fn alignment(self, alignment: u32) -> Result<Self> {
        self.set(ALIGNMENT_KEY, alignment)
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for an invalid shape or rows that are not whole blocks; [`Error::File`](crate::Error::File) for a name that is too long, contains a NUL
    /// or is taken.
    #[doc(alias = "gguf_add_tensor")]
    #[track_caller]
    pub fn tensor(mut self, name: &str, dtype: DType, shape: impl IntoShape) -> Result<Self> {
        let call = Call::new("Builder::tensor");
        let shape = shape.into_shape()?;
        let bytes = shape.checked_bytes(dtype).of(call)?;
        let (len, most) = (name.len() as u64, MAX_NAME);
        if len > most {
            let fault = Fault::LongName { bytes: len, most };
            return Err(FileError::tensor(name, fault));
        }
        if name.contains('\0') {
            return Err(FileError::tensor(name, Fault::NulInName));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(FileError::tensor(name, Fault::Duplicate));
        }
        self.tensors.push(TensorInfo {
            name: name.to_owned(),
            dtype,
            shape,
            // Given when everything is listed: the alignment may still change.
            offset: 0,
            bytes,
        });
        Ok(self)
    }

    /// Writes the header. The values of every tensor are to follow, in the order in which they were listed.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when writing fails, or when the sizes overflow.
    pub fn begin<W: Write>(mut self, mut to: W) -> Result<Writer<W>> {
        let fail = |fault| FileError::at(None, Place::Header, fault);
        if cfg!(target_endian = "big") {
            return Err(fail(Fault::BigEndianHost));
        }
        let alignment = u64::from(self.metadata.alignment());
        place(&mut self.tensors, alignment)?;
        let mut header = header(&self.metadata, &self.tensors);
        // Also where no tensor follows, as ggml does it.
        header.resize(header.len().next_multiple_of(alignment as usize), 0);
        to.write_all(&header).map_err(|error| fail(error.into()))?;
        Ok(Writer {
            to,
            alignment,
            tensors: self.tensors,
            next: 0,
            broken: false,
        })
    }

    /// Lists parameters and writes the whole file, reading one parameter at a time from its device. Gives `to` back, flushed.
    ///
    /// Nothing here is atomic: to replace a file, write another and rename it.
    ///
    /// # Errors
    /// As [`Builder::tensor`], [`Builder::begin`] and [`Writer::write`]; [`Error::Param`](crate::Error::Param) for a parameter that has no values, before
    /// anything is written.
    #[doc(alias = "gguf_write_to_file")]
    #[track_caller]
    pub fn save<W: Write>(self, to: W, params: impl IntoIterator<Item = Param>) -> Result<W> {
        let call = Call::new("Builder::save");
        let params: Vec<_> = params.into_iter().collect();
        let mut builder = self;
        for param in &params {
            param.check_set(call)?;
            builder = builder.tensor(param.name(), param.dtype(), param.shape())?;
        }
        let mut writer = builder.begin(to)?;
        for param in &params {
            writer.write(param.name(), &param.read_bytes()?)?;
        }
        writer.finish()
    }
}

/// Gives every tensor its place.
fn place(tensors: &mut [TensorInfo], alignment: u64) -> Result<()> {
    let mut end = 0_u64;
    for info in tensors {
        info.offset = end;
        let next = end.checked_add(info.bytes as u64);
        let next = next.and_then(|next| next.checked_next_multiple_of(alignment));
        end = next.ok_or_else(|| FileError::tensor(&info.name, Fault::Overflow))?;
    }
    Ok(())
}

/// The header's bytes, without the padding behind it.
fn header(metadata: &Metadata, tensors: &[TensorInfo]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    VERSION.append(&mut bytes);
    (tensors.len() as u64).append(&mut bytes);
    (metadata.len() as u64).append(&mut bytes);
    for (key, value) in metadata.iter() {
        encode_text(key, &mut bytes);
        (value.value_type() as u32).append(&mut bytes);
        value.encode(&mut bytes);
    }
    for info in tensors {
        encode_text(&info.name, &mut bytes);
        let ne = info.shape.ne();
        // As ggml counts them: a dimension of 1 counts only before one that is not.
        let dims = ne.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
        (dims as u32).append(&mut bytes);
        for &n in &ne[..dims] {
            (n as u64).append(&mut bytes);
        }
        (info.dtype as u32).append(&mut bytes);
        info.offset.append(&mut bytes);
    }
    bytes
}

/// A file whose header is written, and whose tensors follow.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    alignment: u64,
    tensors: Vec<TensorInfo>,
    next: usize,
    broken: bool,
}

impl<W: Write> Writer<W> {
    /// Writes the bytes of the next tensor, whose name must be this one.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when another tensor is next, the bytes are not as many as it has, or writing fails. After a write that failed
    /// every call does.
    #[doc(alias = "gguf_set_tensor_data")]
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let info = self.expect(name)?;
        if info.bytes != bytes.len() {
            let detail = format!("{} bytes for a tensor of {}", bytes.len(), info.bytes);
            return Err(FileError::tensor(name, Fault::Mismatch(detail)));
        }
        let padding = info.end().next_multiple_of(self.alignment) - info.end();
        self.next += 1;
        let written = self.to.write_all(bytes);
        let written = written.and_then(|()| self.pad(padding));
        self.broken = written.is_err();
        written.map_err(|error| FileError::tensor(name, error.into()))
    }

    /// Writes the next tensor from `f32` values, rounded to its type.
    ///
    /// # Errors
    /// As [`Writer::write`], and as [`quantize`](crate::quantize::quantize).
    #[track_caller]
    pub fn write_f32(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let call = Call::new("Writer::write_f32");
        let info = self.expect(name)?;
        if info.dtype == DType::F32 {
            return self.write(name, bytemuck::cast_slice(values));
        }
        let bytes = quantize_in(call, info.dtype, values, info.shape.ne()[0], None)?;
        self.write(name, &bytes)
    }

    /// The next tensor, if it is the one of this name.
    fn expect(&self, name: &str) -> Result<&TensorInfo> {
        let fault = match self.tensors.get(self.next) {
            _ if self.broken => Fault::Broken,
            Some(info) if info.name == name => return Ok(info),
            Some(info) => Fault::Order(format!("`{}` is next", info.name)),
            None => Fault::Order("every tensor was written".into()),
        };
        Err(FileError::tensor(name, fault))
    }

    fn pad(&mut self, padding: u64) -> std::io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut left = padding as usize;
        while left > 0 {
            let now = left.min(ZEROS.len());
            self.to.write_all(&ZEROS[..now])?;
            left -= now;
        }
        Ok(())
    }

    /// Flushes, and gives back what was written to.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when a tensor was not written, an earlier write failed, or flushing fails.
    pub fn finish(mut self) -> Result<W> {
        let fail = |fault| FileError::at(None, Place::Header, fault);
        if self.broken {
            return Err(fail(Fault::Broken));
        }
        if let Some(info) = self.tensors.get(self.next) {
            let fault = Fault::Order("it was listed and not written".into());
            return Err(FileError::tensor(&info.name, fault));
        }
        self.to.flush().map_err(|error| fail(error.into()))?;
        Ok(self.to)
    }
}
