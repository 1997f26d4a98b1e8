//! Files of tensors: GGUF, read and written, and safetensors, read.
//!
//! Both readers are safe Rust: no C code sees a byte of a file before it was checked. Every count, length, dimension and offset is held
//! against the length of the file before memory is asked for, so a header that claims 2^60 tensors costs nothing; and texts and
//! arrays get memory as they are read, because a sparse file can be long as well. Only regular files are opened. What is wrong is
//! an [`Error::File`](crate::Error::File) that says what, at which byte, and in which key or tensor ([`FileError`]).
//!
//! Tensors are read when they are asked for, one at a time, or all into [`Params`](crate::Params) on a device.
//!
//! ```
//! use ggml_rs::files::gguf::{Builder, Gguf};
//! use ggml_rs::{DType, Device, Params};
//! use std::io::Cursor;
//!
//! let params = Params::builder().tensor("w", DType::F32, [2, 2])?.allocate(Device::cpu()?)?;
//! params.get("w")?.set_f32(&[1.0, 2.0, 3.0, 4.0])?;
//! let bytes = Builder::new()
//!     .set("general.architecture", "example")?
//!     .set("example.epoch", 7_u32)?
//!     .save(Vec::new(), params.iter())?;
//!
//! let mut file = Gguf::read(Cursor::new(bytes))?;
//! assert_eq!(file.metadata().get::<u32>("example.epoch")?, 7);
//! let loaded = file.load(Device::cpu()?)?;
//! assert_eq!(loaded.get("w")?.read_f32()?, [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

pub mod gguf;
#[cfg(feature = "safetensors")]
pub mod safetensors;

mod error;
mod info;
mod load;
mod source;

pub(crate) use error::with_path;
pub use error::{Fault, FileError, Place};
pub use info::TensorInfo;
