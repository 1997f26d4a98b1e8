//! From bytes to a header. Every number is checked before it is used.

use std::collections::HashMap;
use std::io::{Read, Seek};

use crate::dtype::DType;
use crate::error::Result;
use crate::files::error::{Fault, Place};
use crate::files::gguf::header::Header;
use crate::files::gguf::metadata::Metadata;
use crate::files::gguf::options::ReadOptions;
use crate::files::gguf::value_reader::ValueReader;
use crate::files::gguf::{MAGIC, MAX_KEY, MAX_NAME};
use crate::files::info::{TensorInfo, check_places};
use crate::files::source::Cursor;
use crate::memory::{reserve, reserve_map};
use crate::shape::Shape;

/// The bytes of the shortest key and value: a length, one byte of key, a type, one byte of value.
const LEAST_KEY: u64 = 8 + 1 + 4 + 1;

/// The bytes of the shortest description of a tensor: an empty name's length, the number of dimensions, type, offset.
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// Reads the header.
///
/// # Errors
/// [`Error::File`](crate::Error::File) for everything that is wrong with it.
pub(super) fn header<R: Read + Seek>(source: R, options: ReadOptions) -> Result<Header> {
    let mut cursor = Cursor::new(source)?;
    let version = version(&mut cursor)?;
    let tensor_count = cursor.u64()?;
    let tensor_count = cursor.check_count("tensors", tensor_count, LEAST_TENSOR, 8)?;
    let key_count = cursor.u64()?;
    let key_count = cursor.check_count("keys", key_count, LEAST_KEY, 8)?;
    let metadata = metadata(&mut cursor, key_count, options)?;
    let Tensors {
        infos,
        places,
        offsets,
    } = tensors(&mut cursor, tensor_count, u64::from(metadata.alignment()))?;
    let data = data_offset(&mut cursor, u64::from(metadata.alignment()), infos.len())?;
    let data_len = cursor.len().saturating_sub(data);
    check_places(&infos, data_len, |index| Some(offsets[index]))?;
    Ok(Header {
        version,
        metadata,
        tensors: infos,
        places,
        data,
    })
}

fn version<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<u32> {
    let magic = cursor.bytes()?;
    if magic != MAGIC {
        return Err(cursor.fail_back(4, Fault::Magic(magic)));
    }
    let version = cursor.u32()?;
    match version {
        2 | 3 => Ok(version),
        // Versions are small, so a small number was turned around.
        _ if version & 0xffff == 0 && version != 0 => {
            Err(cursor.fail_back(4, Fault::BigEndian(version)))
        }
        _ => Err(cursor.fail_back(4, Fault::Version(version))),
    }
}

fn metadata<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    count: usize,
    options: ReadOptions,
) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    let mut values = ValueReader::new(cursor, options);
    for index in 0..count {
        values.cursor.place = Place::KeyAt(index as u64);
        let begin = values.cursor.at();
        let key = values.cursor.name(MAX_KEY)?;
        values.cursor.place = Place::Key(key.clone());
        if let Err(fault) = metadata.check_key(&key) {
            return Err(values.cursor.fail_at(begin, fault));
        }
        let begin = values.cursor.at();
        let value = values.value()?;
        metadata.reserve_one()?;
        if let Err(fault) = metadata.insert(&key, value) {
            return Err(values.cursor.fail_at(begin, fault));
        }
    }
    cursor.place = Place::Header;
    Ok(metadata)
}

/// The descriptions of tensors.
#[derive(Default)]
struct Tensors {
    infos: Vec<TensorInfo>,
    places: HashMap<String, usize>,
    /// Where each tensor's offset stands in the file.
    offsets: Vec<u64>,
}

fn tensors<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    count: usize,
    alignment: u64,
) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    for index in 0..count {
        cursor.place = Place::TensorAt(index as u64);
        let begin = cursor.at();
        let name = cursor.name(MAX_NAME)?;
        cursor.place = Place::Tensor(name.clone());
        if name.contains('\0') {
            return Err(cursor.fail_at(begin, Fault::NulInName));
        }
        reserve_map(&mut tensors.places, "names of tensors")?;
        reserve(&mut tensors.infos, 1, "descriptions of tensors")?;
        reserve(&mut tensors.offsets, 1, "descriptions of tensors")?;
        if tensors.places.insert(name.clone(), index).is_some() {
            return Err(cursor.fail_at(begin, Fault::Duplicate));
        }
        let info = tensor(cursor, name, alignment)?;
        tensors.infos.push(info);
        tensors.offsets.push(cursor.at() - 8);
    }
    cursor.place = Place::Header;
    Ok(tensors)
}

fn tensor<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    name: String,
    alignment: u64,
) -> Result<TensorInfo> {
    let count = cursor.u32()?;
    if count > 4 {
        return Err(cursor.fail_back(4, Fault::Dimensions(u64::from(count))));
    }
    let begin = cursor.at();
    let mut dims = [1_u64; 4];
    for dim in &mut dims[..count as usize] {
        *dim = cursor.u64()?;
    }
    let number = cursor.u32()?;
    let mut dtypes = DType::ALL.into_iter();
    let dtype = dtypes
        .find(|dtype| *dtype as u32 == number)
        .ok_or_else(|| cursor.fail_back(4, Fault::TensorType(number.to_string())))?;
    let (shape, bytes) = sizes(dtype, &dims).map_err(|detail| {
        let dims = dims[..count as usize].to_vec();
        cursor.fail_at(begin, Fault::Shape { dims, detail })
    })?;
    let offset = cursor.u64()?;
    if !offset.is_multiple_of(alignment) {
        return Err(cursor.fail_back(8, Fault::Unaligned { offset, alignment }));
    }
    Ok(TensorInfo {
        name,
        dtype,
        shape,
        offset,
        bytes,
    })
}

/// Shape and bytes.
fn sizes(dtype: DType, dims: &[u64; 4]) -> std::result::Result<(Shape, usize), String> {
    // One that does not fit is refused by the shape.
    let ne = dims.map(|dim| usize::try_from(dim).unwrap_or(usize::MAX));
    crate::files::info::sizes(dtype, &ne)
}

/// Where the values begin: the next multiple of the alignment.
fn data_offset<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    alignment: u64,
    tensors: usize,
) -> Result<u64> {
    let at = cursor.at();
    // The alignment is small and the position within a file.
    let data = at.next_multiple_of(alignment);
    if tensors > 0 && data > cursor.len() {
        let (needed, left) = (data - at, cursor.left());
        return Err(cursor.fail_at(at, Fault::Ends { needed, left }));
    }
    Ok(data)
}
