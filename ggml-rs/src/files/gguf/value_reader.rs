//! From bytes to values of metadata, within limits of memory.

use std::io::{Read, Seek};

use crate::error::Result;
use crate::files::error::Fault;
use crate::files::gguf::MAX_NESTING;
use crate::files::gguf::options::ReadOptions;
use crate::files::gguf::value::{Array, Scalar, Value, ValueType};
use crate::files::source::Cursor;
use crate::memory::reserve;

/// Values that are read at once, and for which memory is asked for at once.
const CHUNK: usize = 4096;

/// Reads one value after the other, and counts the memory that they take.
pub(super) struct ValueReader<'c, R> {
    pub(super) cursor: &'c mut Cursor<R>,
    options: ReadOptions,
    /// Bytes of the values before this one.
    before: usize,
    /// Bytes of this value so far.
    bytes: usize,
}

impl<'c, R: Read + Seek> ValueReader<'c, R> {
    pub(super) fn new(cursor: &'c mut Cursor<R>, options: ReadOptions) -> Self {
        Self {
            cursor,
            options,
            before: 0,
            bytes: 0,
        }
    }

    /// The next value, behind its type.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) for what is wrong with it; [`Error::Alloc`](crate::Error::Alloc).
    pub(super) fn value(&mut self) -> Result<Value> {
        self.before = self.before.saturating_add(self.bytes);
        self.bytes = 0;
        Ok(match self.value_type()? {
            ValueType::U8 => Value::U8(self.scalar()?),
            ValueType::I8 => Value::I8(self.scalar()?),
            ValueType::U16 => Value::U16(self.scalar()?),
            ValueType::I16 => Value::I16(self.scalar()?),
            ValueType::U32 => Value::U32(self.scalar()?),
            ValueType::I32 => Value::I32(self.scalar()?),
            ValueType::F32 => Value::F32(self.scalar()?),
            ValueType::Bool => Value::Bool(self.scalar()?),
            ValueType::String => {
                self.take(1, size_of::<String>(), 0)?;
                Value::String(self.text()?)
            }
            ValueType::Array => Value::Array(self.array(1)?),
            ValueType::U64 => Value::U64(self.scalar()?),
            ValueType::I64 => Value::I64(self.scalar()?),
            ValueType::F64 => Value::F64(self.scalar()?),
        })
    }

    /// Counts `count` things of `size` bytes of memory, whose number or length stands in the last `back` bytes.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], which is found before memory is asked for.
    fn take(&mut self, count: usize, size: usize, back: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(count.saturating_mul(size));
        let all = self.before.saturating_add(self.bytes);
        let ReadOptions {
            max_value_bytes,
            max_metadata_bytes,
        } = self.options;
        let limits = [
            (self.bytes, max_value_bytes, "max_value_bytes"),
            (all, max_metadata_bytes, "max_metadata_bytes"),
        ];
        match limits.into_iter().find(|(bytes, most, _)| bytes > most) {
            None => Ok(()),
            Some((bytes, most, limit)) => {
                let fault = Fault::TooLarge { bytes, most, limit };
                Err(self.cursor.fail_back(back, fault))
            }
        }
    }

    fn value_type(&mut self) -> Result<ValueType> {
        let number = self.cursor.u32()?;
        let known = ValueType::from_number(number);
        known.ok_or_else(|| self.cursor.fail_back(4, Fault::ValueType(number)))
    }

    fn scalar<T: Scalar>(&mut self) -> Result<T> {
        self.take(1, T::LEN, 0)?;
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..T::LEN];
        self.cursor.fill(bytes)?;
        T::parse(bytes).map_err(|byte| self.cursor.fail_back(1, Fault::Bool(byte)))
    }

    fn text(&mut self) -> Result<String> {
        let len = self.cursor.u64()?;
        let len = self.cursor.check_count("bytes of text", len, 1, 8)?;
        self.take(len, 1, 8)?;
        self.cursor.text_of(len)
    }

    /// The array at this depth: 1 for one that is not in another.
    fn array(&mut self, depth: usize) -> Result<Array> {
        if depth > MAX_NESTING {
            let fault = Fault::Nested { most: MAX_NESTING };
            return Err(self.cursor.fail_at(self.cursor.at(), fault));
        }
        let value_type = self.value_type()?;
        let count = self.cursor.u64()?;
        let least = value_type.least_bytes();
        let count = self.cursor.check_count("values", count, least, 8)?;
        self.take(count, value_type.held_bytes(), 8)?;
        match value_type {
            ValueType::U8 => self.scalars::<u8>(count),
            ValueType::I8 => self.scalars::<i8>(count),
            ValueType::U16 => self.scalars::<u16>(count),
            ValueType::I16 => self.scalars::<i16>(count),
            ValueType::U32 => self.scalars::<u32>(count),
            ValueType::I32 => self.scalars::<i32>(count),
            ValueType::F32 => self.scalars::<f32>(count),
            ValueType::Bool => self.scalars::<bool>(count),
            ValueType::U64 => self.scalars::<u64>(count),
            ValueType::I64 => self.scalars::<i64>(count),
            ValueType::F64 => self.scalars::<f64>(count),
            ValueType::String => self.collect(count, Self::text).map(Array::String),
            ValueType::Array => self
                .collect(count, |reader| reader.array(depth + 1))
                .map(Array::Array),
        }
    }

    fn scalars<T: Scalar>(&mut self, count: usize) -> Result<Array> {
        let mut values: Vec<T> = Vec::new();
        let mut bytes = vec![0; count.min(CHUNK) * T::LEN];
        while values.len() < count {
            // Memory follows what is read, as in `Cursor::take`.
            let more = (count - values.len()).min(CHUNK);
            reserve(
                &mut values,
                more,
                format_args!("an array of {}", self.cursor.place),
            )?;
            let (begin, len) = (self.cursor.at(), more * T::LEN);
            self.cursor.fill(&mut bytes[..len])?;
            for (index, bytes) in bytes[..len].chunks_exact(T::LEN).enumerate() {
                let at = begin + (index * T::LEN) as u64;
                let fail = |byte| self.cursor.fail_at(at, Fault::Bool(byte));
                values.push(T::parse(bytes).map_err(fail)?);
            }
        }
        Ok(T::wrap(values))
    }

    /// So many things, one after the other. Memory follows what is read, and may be refused: `Iterator::collect` would end the
    /// process.
    fn collect<T>(
        &mut self,
        count: usize,
        mut next: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut values = Vec::new();
        while values.len() < count {
            let more = (count - values.len()).min(CHUNK);
            reserve(
                &mut values,
                more,
                format_args!("an array of {}", self.cursor.place),
            )?;
            for _ in 0..more {
                values.push(next(self)?);
            }
        }
        Ok(values)
    }
}
