//! Values of metadata, and their types.

use std::fmt;

/// A value of a file's metadata.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are those of Rust's own types")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of values of one type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are those of Rust's own types")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    /// The arrays may be of different types and lengths.
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// The type of a value.
#[doc(alias = "gguf_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of Rust's own types")]
#[repr(u32)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The bytes that a value has at least.
    pub(super) const fn least_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            // A length, and a type before it.
            Self::Array => 12,
            // A string is a length, at least.
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
        }
    }

    /// The bytes of memory that one value of an array takes, without what a text or an array holds.
    pub(super) const fn held_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::String => size_of::<String>(),
            Self::Array => size_of::<Array>(),
        }
    }

    /// Its name: `u32`, `string`.
    #[doc(alias = "gguf_type_name")]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A type that a value of metadata can be taken as: a number, `bool`, `&str`, a slice of them, [`&Array`](Array), [`&Value`](Value).
///
/// Nothing is converted: a `u32` is not taken for a `u64`.
#[diagnostic::on_unimplemented(
    message = "a GGUF value cannot be got as `{Self}`",
    label = "not a type of GGUF values",
    note = "arrays are borrowed: ask for `&[f32]`, `&[String]`, or another slice, and call `to_vec()` on it for a `Vec`",
    note = "single values are `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, `bool` and `&str`, each as it stands in the file; `&Value` takes any"
)]
pub trait FromValue<'v>: Sized + sealed::Sealed {
    /// What is said when the value has another type.
    #[doc(hidden)]
    fn wanted() -> String;

    /// The value, if it has this type.
    fn from_value(value: &'v Value) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
}

/// What follows from each row: a variant, its type, and how bytes become one.
macro_rules! variants {
    ($($variant:ident $type:ty),+) => {
        impl Value {
            /// Its type.
            #[doc(alias = "gguf_get_kv_type")]
            pub fn value_type(&self) -> ValueType {
                match self {
                    Self::String(_) => ValueType::String,
                    Self::Array(_) => ValueType::Array,
                    $(Self::$variant(_) => ValueType::$variant,)+
                }
            }

            /// Appends its bytes, without its type.
            pub(super) fn encode(&self, to: &mut Vec<u8>) {
                match self {
                    Self::String(text) => encode_text(text, to),
                    Self::Array(array) => array.encode(to),
                    $(Self::$variant(value) => value.append(to),)+
                }
            }
        }

        impl Array {
            /// The type of its values.
            #[doc(alias = "gguf_get_arr_type")]
            pub fn value_type(&self) -> ValueType {
                match self {
                    Self::String(_) => ValueType::String,
                    Self::Array(_) => ValueType::Array,
                    $(Self::$variant(_) => ValueType::$variant,)+
                }
            }

            /// How many values it has.
            #[doc(alias = "gguf_get_arr_n")]
            pub fn len(&self) -> usize {
                match self {
                    Self::String(values) => values.len(),
                    Self::Array(values) => values.len(),
                    $(Self::$variant(values) => values.len(),)+
                }
            }

            /// Appends type, length and values.
            fn encode(&self, to: &mut Vec<u8>) {
                (self.value_type() as u32).append(to);
                (self.len() as u64).append(to);
                match self {
                    Self::String(values) => values.iter().for_each(|text| encode_text(text, to)),
                    Self::Array(values) => values.iter().for_each(|array| array.encode(to)),
                    $(Self::$variant(values) => values.iter().for_each(|value| value.append(to)),)+
                }
            }
        }

        $(
            impl Scalar for $type {
                fn wrap(values: Vec<Self>) -> Array {
                    Array::$variant(values)
                }
            }

            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Self::$variant(value)
                }
            }

            impl From<Vec<$type>> for Value {
                fn from(values: Vec<$type>) -> Self {
                    Self::Array(Array::$variant(values))
                }
            }

            impl From<&[$type]> for Value {
                fn from(values: &[$type]) -> Self {
                    values.to_vec().into()
                }
            }

            impl sealed::Sealed for $type {}

            impl FromValue<'_> for $type {
                fn wanted() -> String {
                    ValueType::$variant.to_string()
                }

                fn from_value(value: &Value) -> Option<Self> {
                    match value {
                        Value::$variant(value) => Some(*value),
                        _ => None,
                    }
                }
            }

            impl sealed::Sealed for &[$type] {}

            impl<'v> FromValue<'v> for &'v [$type] {
                fn wanted() -> String {
                    format!("array of {}", ValueType::$variant)
                }

                fn from_value(value: &'v Value) -> Option<Self> {
                    match value {
                        Value::Array(Array::$variant(values)) => Some(values),
                        _ => None,
                    }
                }
            }
        )+
    };
}

variants!(
    U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, F32 f32, Bool bool, U64 u64, I64 i64, F64 f64
);

/// A value of a fixed number of bytes.
pub(super) trait Scalar: Bytes {
    /// An array of such values.
    fn wrap(values: Vec<Self>) -> Array;
}

/// A value as bytes in the file's order.
pub(super) trait Bytes: Sized {
    /// How many.
    const LEN: usize;

    /// From exactly [`Bytes::LEN`] bytes; the first of them where it is not allowed.
    fn parse(bytes: &[u8]) -> Result<Self, u8>;

    /// Appends the bytes.
    fn append(&self, to: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($type:ty)+) => {$(
        impl Bytes for $type {
            const LEN: usize = size_of::<Self>();

            fn parse(bytes: &[u8]) -> Result<Self, u8> {
                let mut own = [0; Self::LEN];
                own.copy_from_slice(bytes);
                Ok(Self::from_le_bytes(own))
            }

            fn append(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}

numbers!(u8 i8 u16 i16 u32 i32 f32 u64 i64 f64);

impl Bytes for bool {
    const LEN: usize = 1;

    fn parse(bytes: &[u8]) -> Result<Self, u8> {
        match bytes[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(other),
        }
    }

    fn append(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }
}

/// Appends a length and a text.
pub(super) fn encode_text(text: &str, to: &mut Vec<u8>) {
    (text.len() as u64).append(to);
    to.extend_from_slice(text.as_bytes());
}

impl Array {
    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many arrays lie in each other, this one included.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Array(arrays) => 1 + arrays.iter().map(Self::depth).max().unwrap_or(0),
            _ => 1,
        }
    }
}

impl Value {
    /// The name of its type, with that of its values if it is an array: `array of u8`.
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {}", array.value_type()),
            other => other.value_type().to_string(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Array(Array::String(texts))
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl sealed::Sealed for &str {}

impl<'v> FromValue<'v> for &'v str {
    fn wanted() -> String {
        ValueType::String.to_string()
    }

    fn from_value(value: &'v Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl sealed::Sealed for &[String] {}

impl<'v> FromValue<'v> for &'v [String] {
    fn wanted() -> String {
        "array of string".into()
    }

    fn from_value(value: &'v Value) -> Option<Self> {
        match value {
            Value::Array(Array::String(texts)) => Some(texts),
            _ => None,
        }
    }
}

impl sealed::Sealed for &Array {}

impl<'v> FromValue<'v> for &'v Array {
    fn wanted() -> String {
        ValueType::Array.to_string()
    }

    fn from_value(value: &'v Value) -> Option<Self> {
        match value {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl sealed::Sealed for &Value {}

impl<'v> FromValue<'v> for &'v Value {
    fn wanted() -> String {
        "a value".into()
    }

    fn from_value(value: &'v Value) -> Option<Self> {
        Some(value)
    }
}

/// The type of Rust that a value is got as, from the name of its type in a file.
pub(crate) fn rust_type(name: &str) -> String {
    let of_one = |name: &str| match name {
        "string" => "String".to_owned(),
        other => other.to_owned(),
    };
    match name.strip_prefix("array of ") {
        Some("array") => "&Array".to_owned(),
        Some(element) => format!("&[{}]", of_one(element)),
        None if name == "string" => "&str".to_owned(),
        None => of_one(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_types_are_their_places() {
        for (number, value_type) in ValueType::ALL.into_iter().enumerate() {
            assert_eq!(value_type as usize, number);
            assert_eq!(ValueType::from_number(number as u32), Some(value_type));
        }
        assert_eq!(ValueType::from_number(13), None);
        assert_eq!(ValueType::from_number(u32::MAX), None);
    }

    #[test]
    fn depths_are_counted() {
        let flat = Array::U8(vec![1]);
        assert_eq!(flat.depth(), 1);
        assert_eq!(Array::Array(vec![]).depth(), 1);
        let nested = Array::Array(vec![flat.clone(), Array::Array(vec![flat])]);
        assert_eq!(nested.depth(), 3);
    }
}
