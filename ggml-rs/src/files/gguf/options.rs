//! How much memory a file's metadata may take.

/// How much memory a reader may take for a file's metadata.
///
/// A file's length is no bound: a sparse file of a few kilobytes can claim gigabytes of text. What would need more than is allowed
/// is refused before it is read, by [`Fault::TooLarge`](crate::files::Fault::TooLarge), which names the key and the limit.
///
/// ```
/// use ggml_rs::files::gguf::{Builder, Gguf, ReadOptions};
/// use std::io::Cursor;
///
/// let text = "a text of 26 bytes, or so.";
/// let bytes = Builder::new().set("example.text", text)?.begin(Vec::new())?.finish()?;
/// let small = ReadOptions::default().max_value_bytes(32);
/// let error = Gguf::read_with(Cursor::new(&bytes), small).unwrap_err().to_string();
/// assert!(error.contains("key `example.text`"), "{error}");
/// assert!(error.contains("ReadOptions::max_value_bytes"), "{error}");
/// assert!(Gguf::read_with(Cursor::new(&bytes), ReadOptions::default()).is_ok());
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadOptions {
    /// The most bytes of memory for the value of one key: 256 MiB by default, some twenty times the largest vocabularies.
    ///
    /// A number counts as its size, a text as its length and the size of a [`String`], an array as the sum of its values.
    pub max_value_bytes: usize,
    /// The most bytes of memory for the values of all keys together: 1 GiB by default.
    pub max_metadata_bytes: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadOptions {
    /// The usual limits.
    pub const fn new() -> Self {
        Self {
            max_value_bytes: 256 << 20,
            max_metadata_bytes: 1 << 30,
        }
    }

    /// With [`ReadOptions::max_value_bytes`].
    #[must_use]
    pub const fn max_value_bytes(self, bytes: usize) -> Self {
        Self {
            max_value_bytes: bytes,
            ..self
        }
    }

    /// With [`ReadOptions::max_metadata_bytes`].
    #[must_use]
    pub const fn max_metadata_bytes(self, bytes: usize) -> Self {
        Self {
            max_metadata_bytes: bytes,
            ..self
        }
    }
}
