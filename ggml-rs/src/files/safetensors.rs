//! safetensors, the file format of many frameworks' weights: read, with the feature `safetensors`.
//!
//! The crate of the same name parses the header. Beyond what it checks, places are held against the length of the file before anything
//! is read, and values are read on demand, so the file need not fit in memory.
//!
//! Shapes are row-major in these files, slowest dimension first; [`TensorInfo::shape`] has them in ne order, like everything here.
//!
//! ```
//! use ggml_rs::files::safetensors::SafeTensors;
//! use std::io::Cursor;
//!
//! let header = br#"{"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}"#;
//! let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
//! bytes.extend(header);
//! bytes.extend([1.0_f32, 2.0].iter().flat_map(|value| value.to_le_bytes()));
//!
//! let mut file = SafeTensors::read(Cursor::new(bytes))?;
//! assert_eq!(file.tensor("w")?.shape().ne(), [2, 1, 1, 1]);
//! assert_eq!(file.read_f32("w")?, [1.0, 2.0]);
//! let params = file.load(ggml_rs::Device::cpu()?)?;
//! assert_eq!(params.get("w")?.read_f32()?, [1.0, 2.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata, TensorInfo as Entry};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Call, Result};
use crate::files::error::{Fault, FileError};
use crate::files::info::{TensorInfo, check_places, sizes};
use crate::files::load::{Index, Values};
use crate::files::source::Cursor;
use crate::graph::checked_name;
use crate::params::Params;

/// The longest header, as in the format's own library.
const MAX_HEADER: u64 = 100_000_000;

/// A safetensors file: its header, checked, and the source from which tensors are read.
///
/// A file may hold tensors that ggml cannot: of other types (bool, unsigned, 8-bit floats), of more than four dimensions, without values, or with names of
/// more than 63 bytes. They are in [`SafeTensors::refused`], each with the reason, and do not keep the others from being read.
#[derive(Debug)]
pub struct SafeTensors<R = File> {
    header: Header,
    values: Values<R>,
}

/// What a file's header says.
#[derive(Debug)]
struct Header {
    tensors: Vec<TensorInfo>,
    places: HashMap<String, usize>,
    refused: Vec<(String, Fault)>,
    metadata: BTreeMap<String, String>,
    data: u64,
}

impl SafeTensors<File> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when the file cannot be read, or for what is wrong with it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (header, values) = Values::open(path.as_ref(), Header::read)?;
        Ok(Self { header, values })
    }
}

impl<R: Read + Seek> SafeTensors<R> {
    /// Reads the header of a source that begins with a file.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when the source cannot be read, or for what is wrong with the file.
    pub fn read(source: R) -> Result<Self> {
        let (header, values) = Values::read(source, Header::read)?;
        Ok(Self { header, values })
    }

    /// The file's texts, by key.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The tensors that ggml can hold, in the order of their values.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// The other tensors, and why ggml cannot hold them.
    pub fn refused(&self) -> &[(String, Fault)] {
        &self.header.refused
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when there is none, or one that ggml cannot hold.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        let info = self.header.tensor(name);
        info.map_err(|error| self.values.named(error))
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// As [`SafeTensors::tensor`], and when reading fails; [`Error::Alloc`](crate::Error::Alloc) when the host has no memory.
    pub fn read_bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        self.values.read_bytes(&self.header, name)
    }

    /// The values of a tensor as `f32`, converted from its type.
    ///
    /// # Errors
    /// As [`SafeTensors::read_bytes`], and [`Error::DType`](crate::Error::DType) for a type that does not convert to f32: integers and f64.
    #[track_caller]
    pub fn read_f32(&mut self, name: &str) -> Result<Vec<f32>> {
        let call = Call::new("SafeTensors::read_f32");
        self.values.read_f32(call, &self.header, name)
    }

    /// The values of an I32 tensor.
    ///
    /// # Errors
    /// As [`SafeTensors::read_bytes`], and [`Error::DType`](crate::Error::DType) for another type.
    #[track_caller]
    pub fn read_i32(&mut self, name: &str) -> Result<Vec<i32>> {
        let call = Call::new("SafeTensors::read_i32");
        self.values
            .read_integers(call, &self.header, name, DType::I32)
    }

    /// The values of an I64 tensor.
    ///
    /// # Errors
    /// As [`SafeTensors::read_i32`].
    #[track_caller]
    pub fn read_i64(&mut self, name: &str) -> Result<Vec<i64>> {
        let call = Call::new("SafeTensors::read_i64");
        self.values
            .read_integers(call, &self.header, name, DType::I64)
    }

    /// Every tensor, as parameters on a device. They are read one by one.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when there is a tensor that ggml cannot hold ([`SafeTensors::load_where`] leaves out what is not wanted), or when reading
    /// fails; [`Error::Param`](crate::Error::Param) for a file without tensors; [`Error::Alloc`](crate::Error::Alloc) when the device or the host has no memory.
    #[track_caller]
    pub fn load(&mut self, device: Device) -> Result<Params> {
        if let Some((name, fault)) = self.header.refused.first() {
            let error = FileError::tensor(name, fault.clone());
            return Err(self.values.named(error));
        }
        let call = Call::new("SafeTensors::load");
        self.values.load_where(call, &self.header, device, |_| true)
    }

    /// The tensors, among those that ggml can hold, for which `wanted` says so, as parameters on a device.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when reading fails; [`Error::Param`](crate::Error::Param) when nothing is wanted; [`Error::Alloc`](crate::Error::Alloc) when the device or the host has no memory.
    #[track_caller]
    pub fn load_where(
        &mut self,
        device: Device,
        wanted: impl FnMut(&TensorInfo) -> bool,
    ) -> Result<Params> {
        let call = Call::new("SafeTensors::load_where");
        self.values.load_where(call, &self.header, device, wanted)
    }

    /// Sets parameters that exist from the tensors of their names. Other tensors of the file are left alone.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when a parameter has no tensor, or one of another type or shape; then no parameter was set. Also when reading fails,
    /// where some may have been.
    pub fn load_into(&mut self, params: &Params) -> Result<()> {
        self.values.load_into(&self.header, params)
    }
}

impl Header {
    fn read<R: Read + Seek>(source: &mut R) -> Result<Self> {
        let mut cursor = Cursor::new(source)?;
        let described = described(&mut cursor)?;
        let (data, data_len) = (cursor.at(), cursor.left());
        check_end(&cursor, &described)?;
        let mut header = Self {
            tensors: Vec::new(),
            places: HashMap::new(),
            refused: Vec::new(),
            metadata: BTreeMap::new(),
            data,
        };
        for name in described.offset_keys() {
            // The name is the header's own.
            let Some(entry) = described.info(&name) else {
                continue;
            };
            match info(&name, entry) {
                Ok(info) => {
                    header.places.insert(name, header.tensors.len());
                    header.tensors.push(info);
                }
                Err(fault) => header.refused.push((name, fault)),
            }
        }
        let texts = described.metadata().iter().flatten();
        let texts = texts.map(|(key, text)| (key.clone(), text.clone()));
        header.metadata.extend(texts);
        check_places(&header.tensors, data_len, |_| None)?;
        Ok(header)
    }
}

impl Index for Header {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        if let Some(&place) = self.places.get(name) {
            return Ok(&self.tensors[place]);
        }
        let refused = self.refused.iter().find(|(refused, _)| refused == name);
        let fault = refused.map_or(Fault::Missing, |(_, fault)| fault.clone());
        Err(FileError::tensor(name, fault))
    }

    fn data(&self) -> u64 {
        self.data
    }
}

/// Reads the header, which the format's library checks: offsets follow each other from 0, and lengths are those of shapes and types.
fn described<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<Metadata> {
    let len = cursor.u64()?;
    let fitting = cursor.check_count("bytes of header", len, 1, 8)?;
    if len > MAX_HEADER {
        let fault = Fault::Json(format!("a header of {len} bytes; {MAX_HEADER} are allowed"));
        return Err(cursor.fail_back(8, fault));
    }
    let begin = cursor.at();
    let text = cursor.take(fitting, "a header")?;
    let parsed = serde_json::from_slice(&text).and_then(|Unique| serde_json::from_slice(&text));
    parsed.map_err(|error| {
        // A header is one line, as a rule.
        let column = if error.line() == 1 { error.column() } else { 0 };
        let offset = begin + column.saturating_sub(1) as u64;
        cursor.fail_at(offset, Fault::Json(error.to_string()))
    })
}

/// A header in which each name stands once. The format's library keeps the last of two, and other readers keep the first.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("`{name}` stands twice")));
            }
            names.insert(name);
        }
        Ok(self)
    }
}

/// Refuses a file whose data is not as long as the header says.
fn check_end<R: Read + Seek>(cursor: &Cursor<R>, header: &Metadata) -> Result<()> {
    let (needed, left) = (header.data_len() as u64, cursor.left());
    if needed > left {
        return Err(cursor.fail_at(cursor.at(), Fault::Ends { needed, left }));
    }
    if needed < left {
        let extra = left - needed;
        let fault = Fault::Json(format!(
            "{extra} bytes that belong to no tensor end the file"
        ));
        return Err(cursor.fail_at(cursor.at() + needed, fault));
    }
    Ok(())
}

/// A tensor as ggml would hold it.
fn info(name: &str, entry: &Entry) -> std::result::Result<TensorInfo, Fault> {
    let dtype = dtype(entry.dtype).ok_or_else(|| Fault::TensorType(entry.dtype.to_string()))?;
    if checked_name(name).is_err() {
        let fault = match name.contains('\0') {
            true => Fault::NulInName,
            false => Fault::LongName {
                bytes: name.len() as u64,
                most: u64::from(ggml_sys::GGML_MAX_NAME) - 1,
            },
        };
        return Err(fault);
    }
    if entry.shape.len() > 4 {
        return Err(Fault::Dimensions(entry.shape.len() as u64));
    }
    let mut ne: Vec<usize> = entry.shape.iter().rev().copied().collect();
    if ne.is_empty() {
        // A scalar.
        ne.push(1);
    }
    let (shape, bytes) = sizes(dtype, &ne).map_err(|detail| Fault::Shape {
        dims: entry.shape.iter().map(|&dim| dim as u64).collect(),
        detail,
    })?;
    Ok(TensorInfo {
        name: name.to_owned(),
        dtype,
        shape,
        offset: entry.data_offsets.0 as u64,
        bytes,
    })
}

/// ggml's type of the same bytes.
fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F64 => DType::F64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        _ => return None,
    })
}
