//! From files to memory and to parameters on devices, for every format.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Call, Error, Moved, Result};
use crate::files::error::{Fault, FileError, Place, with_path};
use crate::files::info::TensorInfo;
use crate::files::source::read_at;
use crate::memory::reserve;
use crate::params::Params;
use crate::quantize::{check_dequantize, dequantize_checked, read_by};

/// A header that was checked: the tensors of a file, and where their values begin.
pub(crate) trait Index {
    fn tensors(&self) -> &[TensorInfo];

    /// # Errors
    /// [`Error::File`] when there is no such tensor that can be read.
    fn tensor(&self, name: &str) -> Result<&TensorInfo>;

    /// What offsets of tensors count from.
    fn data(&self) -> u64;
}

/// What the values of tensors are read from.
#[derive(Debug)]
pub(crate) struct Values<R> {
    source: R,
    path: Option<PathBuf>,
}

impl Values<File> {
    /// Opens a file, whose name then stands in every error, and reads its header.
    ///
    /// # Errors
    /// [`Error::File`] when it is no file that can be opened; what `header` says.
    pub fn open<H>(path: &Path, header: impl FnOnce(&mut File) -> Result<H>) -> Result<(H, Self)> {
        let read = open(path).and_then(|file| Self::read(file, header));
        let (header, values) = read.map_err(|error| with_path(error, path))?;
        let path = Some(path.to_owned());
        Ok((header, Self { path, ..values }))
    }
}

impl<R: Read + Seek> Values<R> {
    /// Reads the header of a source.
    ///
    /// # Errors
    /// What `header` says.
    pub fn read<H>(mut source: R, header: impl FnOnce(&mut R) -> Result<H>) -> Result<(H, Self)> {
        let header = header(&mut source)?;
        Ok((header, Self { source, path: None }))
    }

    pub fn into_inner(self) -> R {
        self.source
    }

    /// An error, with the name of the file if there is one.
    pub fn named(&self, error: Error) -> Error {
        match &self.path {
            Some(path) => with_path(error, path),
            None => error,
        }
    }

    /// Replaces what is in `to` by a tensor's bytes.
    ///
    /// # Errors
    /// [`Error::File`] when there is none of this name, or reading fails; [`Error::Alloc`] when there is no memory.
    pub fn read_into(&mut self, index: &impl Index, name: &str, to: &mut Vec<u8>) -> Result<()> {
        let read = index
            .tensor(name)
            .and_then(|info| read(&mut self.source, index.data(), info, to));
        read.map_err(|error| self.named(error))
    }

    /// A tensor's bytes.
    ///
    /// # Errors
    /// As [`Values::read_into`].
    pub fn read_bytes(&mut self, index: &impl Index, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(index, name, &mut bytes)?;
        Ok(bytes)
    }

    /// A tensor's values, converted from its type.
    ///
    /// # Errors
    /// As [`Values::read_into`], and [`Error::DType`] for a type that does not convert.
    pub fn read_f32(&mut self, call: Call, index: &impl Index, name: &str) -> Result<Vec<f32>> {
        let info = index.tensor(name).map_err(|error| self.named(error))?;
        check_dequantize(info.dtype, info.bytes).map_err(|refused| {
            call.dtype(format!("{}: {}", self.tensor(name), refused.detail()))
        })?;
        dequantize_checked(info.dtype, &self.read_bytes(index, name)?)
    }

    /// A tensor's values, which are of this integer type.
    ///
    /// # Errors
    /// As [`Values::read_into`], and [`Error::DType`] for another type.
    pub fn read_integers<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &mut self,
        call: Call,
        index: &impl Index,
        name: &str,
        dtype: DType,
    ) -> Result<Vec<T>> {
        let info = index.tensor(name).map_err(|error| self.named(error))?;
        if info.dtype != dtype {
            let (tensor, has) = (self.tensor(name), info.dtype);
            return Err(call.dtype(format!("{tensor}: {has} values: {}", read_by(has))));
        }
        Ok(bytemuck::pod_collect_to_vec(&self.read_bytes(index, name)?))
    }

    /// The file as errors name it.
    fn file(&self) -> String {
        match &self.path {
            Some(path) => path.display().to_string(),
            None => "the file".to_owned(),
        }
    }

    fn tensor(&self, name: &str) -> String {
        match &self.path {
            Some(path) => format!("tensor `{name}` of {}", path.display()),
            None => format!("tensor `{name}`"),
        }
    }

    /// Parameters on a device, from the tensors that are wanted.
    ///
    /// # Errors
    /// As `ParamsBuilder::allocate`, and [`Error::File`] when reading fails.
    pub fn load_where(
        &mut self,
        call: Call,
        index: &impl Index,
        device: Device,
        mut wanted: impl FnMut(&TensorInfo) -> bool,
    ) -> Result<Params> {
        let all = index.tensors();
        let mut builder = Params::builder();
        for info in all.iter().filter(|info| wanted(info)) {
            let listed = builder.tensor(&info.name, info.dtype, info.shape);
            builder = listed.moved_to(call.at)?;
        }
        if builder.is_empty() {
            let file = self.file();
            return Err(call.param(match all.len() {
                0 => format!("{file} has no tensors, so there is nothing to load"),
                n => {
                    format!("none of the {n} tensors of {file} is wanted: the closure refused each")
                }
            }));
        }
        let params = builder.allocate(device).moved_to(call.at)?;
        self.load_into(index, &params)?;
        Ok(params)
    }

    /// Sets every parameter from the tensor of its name.
    ///
    /// # Errors
    /// [`Error::File`]: before anything is set, when a parameter has no tensor that is like it; when reading fails.
    pub fn load_into(&mut self, index: &impl Index, params: &Params) -> Result<()> {
        let loaded = check_alike(index, params).and_then(|()| {
            let mut bytes = Vec::new();
            for param in params.iter() {
                let info = index.tensor(param.name())?;
                read(&mut self.source, index.data(), info, &mut bytes)?;
                param.set_bytes(&bytes)?;
            }
            Ok(())
        });
        loaded.map_err(|error| self.named(error))
    }
}

/// Opens what can be read at any place. A pipe would keep the caller waiting until somebody writes.
///
/// # Errors
/// [`Error::File`].
fn open(path: &Path) -> Result<File> {
    let open = || match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(
            ErrorKind::InvalidInput,
            "not a regular file",
        )),
    };
    open().map_err(|error| FileError::at(None, Place::Header, error.into()))
}

/// # Errors
/// [`Error::File`] unless each parameter has a tensor of its type and shape.
fn check_alike(index: &impl Index, params: &Params) -> Result<()> {
    for param in params.iter() {
        let info = index.tensor(param.name())?;
        if (info.dtype, info.shape) != (param.dtype(), param.shape()) {
            let detail = format!(
                "the file has {} {:?}, the parameter is {} {:?}",
                info.dtype,
                info.shape.ne(),
                param.dtype(),
                param.shape().ne()
            );
            return Err(FileError::tensor(&info.name, Fault::Mismatch(detail)));
        }
    }
    Ok(())
}

fn read<R: Read + Seek>(
    source: &mut R,
    data: u64,
    info: &TensorInfo,
    to: &mut Vec<u8>,
) -> Result<()> {
    to.clear();
    reserve(to, info.bytes, format_args!("tensor `{}`", info.name))?;
    to.resize(info.bytes, 0);
    // Checked when the header was read: offset and end lie within the file.
    read_at(source, data + info.offset, to, &info.name)
}
