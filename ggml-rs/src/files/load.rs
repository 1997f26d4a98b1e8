//! From files to memory and to parameters on devices, for every format.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::files::error::{Fault, FileError, Place};
use crate::files::info::TensorInfo;
use crate::files::source::read_at;
use crate::params::Params;

/// # Errors
/// [`Error::File`].
pub(crate) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| FileError::at(None, Place::Header, error.into()))
}

/// Replaces what is in `to` by a tensor's bytes.
///
/// # Errors
/// [`Error::File`] when reading fails, [`Error::Alloc`] when there is no memory.
pub(crate) fn read<R: Read + Seek>(
    source: &mut R,
    data: u64,
    info: Result<&TensorInfo>,
    to: &mut Vec<u8>,
) -> Result<()> {
    let info = info?;
    to.clear();
    to.try_reserve_exact(info.bytes)
        .map_err(|error| Error::Alloc {
            what: format!("tensor `{}`", info.name),
            bytes: info.bytes,
            detail: error.to_string(),
        })?;
    to.resize(info.bytes, 0);
    // Checked when the header was read: offset and end lie within the file.
    read_at(source, data + info.offset, to, &info.name)
}

/// Parameters without values for the tensors that are wanted.
///
/// # Errors
/// As `ParamsBuilder::allocate`.
#[track_caller]
pub(crate) fn allocate(
    tensors: &[TensorInfo],
    device: Device,
    mut wanted: impl FnMut(&TensorInfo) -> bool,
) -> Result<Params> {
    let mut builder = Params::builder();
    for info in tensors.iter().filter(|info| wanted(info)) {
        builder = builder.tensor(&info.name, info.dtype, info.shape)?;
    }
    builder.allocate(device)
}

/// Sets every parameter from the tensor of its name.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn fill<'t, R: Read + Seek>(
    source: &mut R,
    data: u64,
    params: &Params,
    tensor: impl Fn(&str) -> Result<&'t TensorInfo>,
) -> Result<()> {
    for param in params.iter() {
        let info = tensor(param.name())?;
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
    let mut bytes = Vec::new();
    for param in params.iter() {
        read(source, data, tensor(param.name()), &mut bytes)?;
        param.set_bytes(&bytes)?;
    }
    Ok(())
}
