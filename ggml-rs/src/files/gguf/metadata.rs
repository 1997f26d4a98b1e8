//! The keys of a file and their values.

use std::collections::HashMap;

use crate::error::Result;
use crate::files::error::{Fault, FileError};
use crate::files::gguf::value::{FromValue, Value};
use crate::files::gguf::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAX_KEY, MAX_NESTING, aligns};
use crate::memory::{reserve, reserve_map};

/// The keys of a file and their values, in the file's order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

impl Metadata {
    /// The value of a key, as the type that is asked for: a number of the value's own type, `bool`, `&str`, `&[f32]` and other
    /// slices of these, `&[String]`, or a [`&Value`](Value) of any type. Nothing is converted or copied: an array is a slice,
    /// and never a `Vec`, of which `to_vec()` makes one.
    ///
    /// ```
    /// use ggml_rs::files::gguf::{Builder, Gguf};
    /// use std::io::Cursor;
    ///
    /// let file = Builder::new()
    ///     .set("rope.factors", vec![1.0_f32, 2.0])?
    ///     .set("tokens", vec!["a".to_owned(), "b".to_owned()])?
    ///     .save(Vec::new(), [])?;
    /// let gguf = Gguf::read(Cursor::new(file))?;
    /// let factors: &[f32] = gguf.metadata().get("rope.factors")?;
    /// let owned: Vec<f32> = factors.to_vec();
    /// let tokens: &[String] = gguf.metadata().get("tokens")?;
    /// assert_eq!((owned.len(), tokens.len()), (2, 2));
    /// // The error names the type that the value has.
    /// let error = gguf.metadata().get::<&[f64]>("rope.factors").unwrap_err();
    /// assert!(error.to_string().ends_with("is array of f32, not array of f64 (`&[f32]` in Rust)"));
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when there is no such key ([`Fault::Missing`]) or its value has another type
    /// ([`Fault::WrongType`], which names both).
    #[doc(alias = "gguf_get_val_u32")]
    #[doc(alias = "gguf_get_val_str")]
    #[doc(alias = "gguf_get_val_f32")]
    #[doc(alias = "gguf_get_arr_data")]
    pub fn get<'v, T: FromValue<'v>>(&'v self, key: &str) -> Result<T> {
        self.find(key)?
            .ok_or_else(|| FileError::key(key, Fault::Missing))
    }

    /// As [`Metadata::get`], but `None` when there is no such key.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when the key's value has another type.
    #[doc(alias = "gguf_find_key")]
    pub fn find<'v, T: FromValue<'v>>(&'v self, key: &str) -> Result<Option<T>> {
        let Some(&place) = self.places.get(key) else {
            return Ok(None);
        };
        let value = &self.entries[place].1;
        match T::from_value(value) {
            Some(value) => Ok(Some(value)),
            None => {
                let (found, wanted) = (value.type_name(), T::wanted());
                Err(FileError::key(key, Fault::WrongType { found, wanted }))
            }
        }
    }

    /// Every key and its value, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    #[doc(alias = "gguf_get_n_kv")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes room for one more key: a file may have as many as it likes.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc).
    pub(super) fn reserve_one(&mut self) -> Result<()> {
        reserve(&mut self.entries, 1, "keys")?;
        reserve_map(&mut self.places, "keys")
    }

    /// Adds a key.
    ///
    /// # Errors
    /// What is wrong with the key or the value.
    pub(super) fn insert(&mut self, key: &str, value: Value) -> std::result::Result<(), Fault> {
        self.check_key(key)?;
        check_value(key, &value)?;
        self.places.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), value));
        Ok(())
    }

    /// # Errors
    /// What is wrong with a new key.
    pub(super) fn check_key(&self, key: &str) -> std::result::Result<(), Fault> {
        if key.is_empty() {
            return Err(Fault::EmptyKey);
        }
        let (bytes, most) = (key.len() as u64, MAX_KEY);
        if bytes > most {
            return Err(Fault::LongName { bytes, most });
        }
        // ggml would take the key to end there, and two keys for one.
        if key.contains('\0') {
            return Err(Fault::NulInName);
        }
        match self.places.contains_key(key) {
            true => Err(Fault::Duplicate),
            false => Ok(()),
        }
    }

    /// The alignment of tensors.
    #[doc(alias = "gguf_get_alignment")]
    pub fn alignment(&self) -> u32 {
        // A value of another type was refused when it was inserted.
        let set = self.find(ALIGNMENT_KEY).ok().flatten();
        set.unwrap_or(DEFAULT_ALIGNMENT)
    }
}

/// # Errors
/// What is wrong with a value.
fn check_value(key: &str, value: &Value) -> std::result::Result<(), Fault> {
    match value {
        Value::Array(array) if array.depth() > MAX_NESTING => {
            return Err(Fault::Nested { most: MAX_NESTING });
        }
        _ => {}
    }
    if key != ALIGNMENT_KEY {
        return Ok(());
    }
    match value {
        Value::U32(alignment) if aligns(*alignment) => Ok(()),
        Value::U32(alignment) => Err(Fault::Alignment(u64::from(*alignment))),
        other => Err(Fault::WrongType {
            found: other.type_name(),
            wanted: "u32".into(),
        }),
    }
}
