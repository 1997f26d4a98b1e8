//! GGUF, the file format of ggml: versions 2 and 3 are read, version 3 is written.
//!
//! A file holds *metadata*, typed values under keys, and *tensors*. [`Gguf`] reads one, [`Builder`] makes one:
//!
//! ```
//! use ggml_rs::DType;
//! use ggml_rs::files::gguf::{Builder, Gguf};
//! use std::io::Cursor;
//!
//! // What will be in the file is listed first, because offsets stand before values.
//! let mut writer = Builder::new()
//!     .set("example.words", vec!["one".to_owned(), "two".to_owned()])?
//!     .tensor("a", DType::F32, [2])?
//!     .tensor("b", DType::I32, [1])?
//!     .begin(Vec::new())?;
//! // Then the values are written, one tensor at a time: any `Write` will do.
//! writer.write_f32("a", &[0.5, 1.5])?;
//! writer.write("b", &7_i32.to_le_bytes())?;
//! let bytes = writer.finish()?;
//!
//! let mut file = Gguf::read(Cursor::new(bytes))?;
//! assert_eq!(file.metadata().get::<&[String]>("example.words")?, ["one", "two"]);
//! assert_eq!(file.tensor("b")?.dtype(), DType::I32);
//! assert_eq!(file.read_f32("a")?, [0.5, 1.5]);
//! // A key of another type is an error that names both.
//! let error = file.metadata().get::<u32>("example.words").unwrap_err().to_string();
//! assert!(error.contains("is array of string, not u32"), "{error}");
//! # Ok::<(), ggml_rs::Error>(())
//! ```
//!
//! # What is read
//! Everything that the format allows, within limits that no sensible file meets: keys of up to 65,535 bytes, arrays in arrays up to
//! [`MAX_NESTING`] deep, alignments up to [`MAX_ALIGNMENT`], and values that fit in the memory that [`ReadOptions`] allows. As in ggml, names of tensors have up to 63 bytes and tensors up to four
//! dimensions; unlike in ggml, no dimension is 0. Tensors may lie in any order and leave gaps; they must be aligned, end before the
//! file does, and not overlap.
//!
//! # What is written
//! The same calls give the same bytes. ggml reads what is written here, with one exception: arrays of arrays, which the format
//! has and ggml refuses.

mod header;
mod metadata;
mod options;
mod parse;
mod reader;
mod value;
mod value_reader;
mod writer;

pub use header::Header;
pub use metadata::Metadata;
pub use options::ReadOptions;
pub use reader::Gguf;
pub(crate) use value::rust_type;
pub use value::{Array, FromValue, Value, ValueType};
pub use writer::{Builder, Writer};

/// The key that sets the alignment of tensors. Its type is u32.
pub const ALIGNMENT_KEY: &str = "general.alignment";

/// The alignment of a file that does not set one.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// The largest alignment that is read and written.
pub const MAX_ALIGNMENT: u32 = 1 << 20;

/// How deep arrays may lie in arrays.
pub const MAX_NESTING: usize = 8;

/// The longest key, in bytes.
const MAX_KEY: u64 = 65_535;

/// The longest name of a tensor, in bytes: ggml keeps a NUL behind it.
const MAX_NAME: u64 = ggml_sys::GGML_MAX_NAME as u64 - 1;

const MAGIC: [u8; 4] = *b"GGUF";

/// The version that is written.
const VERSION: u32 = 3;

/// Whether an alignment is allowed.
fn aligns(alignment: u32) -> bool {
    alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT
}
