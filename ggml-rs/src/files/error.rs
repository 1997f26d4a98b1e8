//! What can be wrong with a file: which fault, at which byte, in which key or tensor.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::error::Error;

/// One thing that is wrong with a file, or with what should become one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FileError {
    /// The file, where the error has one: readers and writers of other sources know no path.
    pub path: Option<PathBuf>,
    /// The first byte of what is wrong, counted from the beginning of the file.
    pub offset: Option<u64>,
    /// The part of the file.
    pub place: Place,
    /// What is wrong with it.
    pub fault: Fault,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// What stands before the first key, or the file as a whole.
    Header,
    /// The key of this number, counted from 0, whose name is not known yet.
    KeyAt(u64),
    /// The key of this name, or its value.
    Key(String),
    /// The tensor of this number, counted from 0, whose name is not known yet.
    TensorAt(u64),
    /// The tensor of this name: its description or its values.
    Tensor(String),
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The system failed to read, write or seek.
    #[error("{message}")]
    Io {
        /// The system's kind of error.
        kind: io::ErrorKind,
        /// The system's message.
        message: String,
    },
    /// The file does not begin with `GGUF`.
    #[error("not a GGUF file: it begins with {0:02x?}")]
    Magic([u8; 4]),
    /// The version's bytes are in the order of a big-endian machine.
    #[error("a big-endian file (version {0:#x}); only little-endian files are read")]
    BigEndian(u32),
    /// This machine is big-endian, where the files' values would have to be swapped.
    #[error("files are read and written on little-endian machines only")]
    BigEndianHost,
    /// A version that is not read.
    #[error("version {0}; versions 2 and 3 are read")]
    Version(u32),
    /// The file ends too early.
    #[error("the file ends here: {needed} bytes are needed, {left} are left")]
    Ends {
        /// Bytes that must follow.
        needed: u64,
        /// Bytes that follow.
        left: u64,
    },
    /// A count or length is beyond what the rest of the file can hold.
    #[error("{count} {what}, but the {left} bytes that are left hold {room} at most")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many are claimed.
        count: u64,
        /// How many fit.
        room: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// A value of metadata would take more memory than the reader may use.
    #[error(
        "the value takes {bytes} bytes of memory or more; {most} are allowed (ReadOptions::{limit} sets the limit)"
    )]
    TooLarge {
        /// Bytes of memory that are needed at least.
        bytes: usize,
        /// Bytes that are allowed.
        most: usize,
        /// The field of [`ReadOptions`](super::gguf::ReadOptions) that allows them.
        limit: &'static str,
    },
    /// A name or a text is not UTF-8.
    #[error("not UTF-8 at byte {at} of the text")]
    Utf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// A key is empty.
    #[error("a key must not be empty")]
    EmptyKey,
    /// A name is longer than may be.
    #[error("a name of {bytes} bytes; {most} are allowed")]
    LongName {
        /// Its length.
        bytes: u64,
        /// The longest that is allowed.
        most: u64,
    },
    /// A name contains a NUL byte, where ggml would take it to end.
    #[error("the name contains a NUL")]
    NulInName,
    /// Two keys or two tensors have one name.
    #[error("the name is taken already")]
    Duplicate,
    /// No type of values has this number.
    #[error("no value type has the number {0}")]
    ValueType(u32),
    /// A bool is neither 0 nor 1.
    #[error("a bool of {0}; 0 and 1 are allowed")]
    Bool(u8),
    /// Arrays of arrays go deeper than may be.
    #[error("arrays are nested more than {most} deep")]
    Nested {
        /// The deepest that is allowed.
        most: usize,
    },
    /// An alignment that is not a power of two, or absurd.
    #[error("an alignment of {0}; powers of two up to {most} are allowed", most = super::gguf::MAX_ALIGNMENT)]
    Alignment(u64),
    /// A tensor has more than four dimensions.
    #[error("{0} dimensions; tensors have up to 4")]
    Dimensions(u64),
    /// A tensor's dimensions do not make a tensor of its type.
    #[error("{detail}")]
    Shape {
        /// The dimensions as they stand in the file.
        dims: Vec<u64>,
        /// What is wrong with them.
        detail: String,
    },
    /// A tensor's type is unknown, or cannot be held.
    #[error("tensor type {0}, which ggml does not have")]
    TensorType(String),
    /// A tensor's values do not begin at a multiple of the alignment.
    #[error("its values begin at {offset}, not at a multiple of {alignment}")]
    Unaligned {
        /// Where they begin, counted from the first byte of data.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor's values end behind the end of the file.
    #[error(
        "its values lie at {offset} and have {bytes} bytes, but the file has {data} bytes of data"
    )]
    Beyond {
        /// Where they begin, counted from the first byte of data.
        offset: u64,
        /// How many bytes they have.
        bytes: u64,
        /// How many bytes of data the file has.
        data: u64,
    },
    /// Two tensors share bytes.
    #[error("its values overlap those of tensor `{}`", name(.other))]
    Overlaps {
        /// The other tensor.
        other: String,
    },
    /// Sizes add up to more than can be addressed.
    #[error("the sizes overflow")]
    Overflow,
    /// A value is there and has another type.
    #[error("is {found}, not {wanted}{}", in_rust(.found))]
    WrongType {
        /// The type that it has.
        found: String,
        /// The type that was asked for, or that it must have.
        wanted: String,
    },
    /// Nothing has this name.
    #[error("the file has none of this name")]
    Missing,
    /// A tensor of the file is not like the parameter or the bytes that go with it.
    #[error("{0}")]
    Mismatch(String),
    /// Tensors were given to a writer out of order, or one too many.
    #[error("out of order: {0}")]
    Order(String),
    /// An earlier call of the writer failed, so what it has written is not a file.
    #[error("an earlier write failed; what was written is not a whole file")]
    Broken,
    /// The header of a safetensors file is not what it must be.
    #[error("{}", message(.0))]
    Json(String),
}

/// The type of Rust of a value's type, where it has another name.
fn in_rust(found: &str) -> String {
    let rust = super::gguf::rust_type(found);
    match rust == found {
        true => String::new(),
        false => format!(" (`{rust}` in Rust)"),
    }
}

impl FileError {
    pub(crate) fn at(offset: Option<u64>, place: Place, fault: Fault) -> Error {
        Error::File(Box::new(Self {
            path: None,
            offset,
            place,
            fault,
        }))
    }

    /// An error about a key that is no part of a file's bytes.
    pub(crate) fn key(key: &str, fault: Fault) -> Error {
        Self::at(None, Place::Key(key.to_owned()), fault)
    }

    /// An error about a tensor that is no part of a file's bytes.
    pub(crate) fn tensor(name: &str, fault: Fault) -> Error {
        Self::at(None, Place::Tensor(name.to_owned()), fault)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io {
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

/// The same error, with the file's path if it is about a file.
pub(crate) fn with_path(error: Error, path: &std::path::Path) -> Error {
    match error {
        Error::File(mut error) => {
            error.path = Some(path.to_owned());
            Error::File(error)
        }
        other => other,
    }
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}", self.place)?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::KeyAt(index) => write!(f, "key number {index}"),
            Self::Key(key) => write!(f, "key `{}`", name(key)),
            Self::TensorAt(index) => write!(f, "tensor number {index}"),
            Self::Tensor(tensor) => write!(f, "tensor `{}`", name(tensor)),
        }
    }
}

/// A text of a file, or one that quotes a file: what would end the line or move the cursor is escaped, and what is long is cut.
struct Clipped<'t> {
    text: &'t str,
    most: usize,
}

fn name(text: &str) -> Clipped<'_> {
    Clipped { text, most: 80 }
}

fn message(text: &str) -> Clipped<'_> {
    Clipped { text, most: 320 }
}

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.text.chars();
        for c in chars.by_ref().take(self.most) {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => write!(f, "{c}")?,
            }
        }
        match chars.next() {
            Some(_) => f.write_str("..."),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_place_byte_and_fault() {
        let error = FileError::at(Some(24), Place::Key("a\nb".into()), Fault::Bool(7));
        let error = with_path(error, std::path::Path::new("x.gguf"));
        assert_eq!(
            error.to_string(),
            "file: x.gguf: key `a\\nb`, byte 24: a bool of 7; 0 and 1 are allowed"
        );
    }

    #[test]
    fn a_long_name_is_cut() {
        let text = Place::Tensor("n".repeat(1000)).to_string();
        assert!(text.len() < 100 && text.ends_with("...`"), "{text}");
    }
}
