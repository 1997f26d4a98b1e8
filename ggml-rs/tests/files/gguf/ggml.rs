//! ggml's own reader takes what is written here, and its own writer writes the same bytes.

use std::ffi::{CStr, CString, c_void};
use std::io::Cursor;
use std::path::Path;
use std::ptr::{null_mut, slice_from_raw_parts};

use ggml_rs::files::gguf::{Array, Builder, Gguf, Value};
use ggml_rs::{DType, Device, Shape};
use ggml_sys as sys;

use crate::common::Random;

/// A file's content: tensors with their bytes.
struct Content {
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, DType, Shape, Vec<u8>)>,
}

impl Content {
    /// Every type of value and of tensor.
    fn everything(alignment: Option<u32>) -> Self {
        let texts = vec!["one".to_owned(), String::new(), "dreißig".to_owned()];
        let mut keys: Vec<(String, Value)> = vec![
            ("u8".into(), 200_u8.into()),
            ("i8".into(), (-100_i8).into()),
            ("u16".into(), 60_000_u16.into()),
            ("i16".into(), (-30_000_i16).into()),
            ("u32".into(), u32::MAX.into()),
            ("i32".into(), i32::MIN.into()),
            ("f32".into(), 1.25_f32.into()),
            ("bool".into(), true.into()),
            ("text".into(), "schön".into()),
            ("u64".into(), u64::MAX.into()),
            ("i64".into(), i64::MIN.into()),
            ("f64".into(), (-2.5e300_f64).into()),
            ("no text".into(), "".into()),
            ("u8s".into(), vec![1_u8, 2, 255].into()),
            ("i8s".into(), vec![-1_i8, 2].into()),
            ("u16s".into(), vec![1_u16, 65_535].into()),
            ("i16s".into(), vec![-1_i16].into()),
            ("u32s".into(), vec![1_u32, 2].into()),
            ("i32s".into(), vec![-7_i32; 5000].into()),
            ("f32s".into(), vec![0.1_f32, f32::INFINITY].into()),
            ("bools".into(), vec![true, false, true].into()),
            ("texts".into(), texts.into()),
            ("u64s".into(), vec![u64::MAX].into()),
            ("i64s".into(), vec![i64::MIN, 0].into()),
            ("f64s".into(), vec![0.1_f64; 3].into()),
            ("nothing".into(), Vec::<f32>::new().into()),
        ];
        keys.extend(alignment.map(|bytes| ("general.alignment".to_owned(), bytes.into())));
        let mut random = Random::new(7);
        let tensors = DType::ALL.into_iter().enumerate().map(|(index, dtype)| {
            let rows = [&[1_usize][..], &[2, 1, 3], &[1, 1, 1], &[3, 2, 2], &[]][index % 5];
            let mut dims = vec![dtype.block_len() * (1 + index % 3)];
            dims.extend(rows);
            let shape = Shape::new(&dims).unwrap();
            let bytes = (0..shape.bytes(dtype).unwrap()).map(|_| random.next() as u8);
            (format!("tensor.{dtype}"), dtype, shape, bytes.collect())
        });
        Self {
            keys,
            tensors: tensors.collect(),
        }
    }

    fn ours(&self) -> Vec<u8> {
        let keys = self.keys.iter();
        let builder = keys.fold(Builder::new(), |builder, (key, value)| {
            builder.set(key, value.clone()).unwrap()
        });
        let tensors = self.tensors.iter();
        let builder = tensors.fold(builder, |builder, (name, dtype, shape, _)| {
            builder.tensor(name, *dtype, *shape).unwrap()
        });
        let mut writer = builder.begin(Vec::new()).unwrap();
        for (name, _, _, bytes) in &self.tensors {
            writer.write(name, bytes).unwrap();
        }
        writer.finish().unwrap()
    }

    /// The same file by ggml.
    fn by_ggml(&self, path: &Path) -> Vec<u8> {
        let file = File::empty();
        self.keys
            .iter()
            .for_each(|(key, value)| file.set(key, value));
        let memory = self
            .tensors
            .iter()
            .map(|(.., bytes)| bytes.len() + 1024)
            .sum();
        let params = sys::ggml_init_params {
            mem_size: memory,
            mem_buffer: null_mut(),
            no_alloc: false,
        };
        // SAFETY: ggml is ready (`File::empty`), and takes memory of its own.
        let context = unsafe { sys::ggml_init(params) };
        for (name, dtype, shape, bytes) in &self.tensors {
            let ne = shape.ne().map(|n| n as i64);
            let name = CString::new(name.as_str()).unwrap();
            // SAFETY: the context has room for the tensor, whose memory is as large as its values.
            unsafe {
                let tensor =
                    sys::ggml_new_tensor(context, *dtype as sys::ggml_type, 4, ne.as_ptr());
                sys::ggml_set_name(tensor, name.as_ptr());
                bytes.as_ptr().copy_to((*tensor).data.cast(), bytes.len());
                sys::gguf_add_tensor(file.0, tensor);
            }
        }
        let to = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the tensors are alive.
        assert!(unsafe { sys::gguf_write_to_file(file.0, to.as_ptr(), false) });
        // SAFETY: nothing uses the tensors any more: `file` knows only their descriptions.
        unsafe { sys::ggml_free(context) };
        std::fs::read(path).unwrap()
    }
}

/// ggml's description of a file.
struct File(*mut sys::gguf_context);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: made by ggml, and freed once.
        unsafe { sys::gguf_free(self.0) };
    }
}

impl File {
    fn empty() -> Self {
        // Makes ggml ready.
        Device::cpu().unwrap();
        // SAFETY: no arguments.
        Self(unsafe { sys::gguf_init_empty() })
    }

    /// Reads a file with its tensors, into the context that is given back.
    fn open(path: &Path) -> (Self, *mut sys::ggml_context) {
        Device::cpu().unwrap();
        let mut context = null_mut();
        let params = sys::gguf_init_params {
            no_alloc: false,
            ctx: &mut context,
        };
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a NUL, the context's place is alive.
        let file = unsafe { sys::gguf_init_from_file(path.as_ptr(), params) };
        assert!(
            !file.is_null() && !context.is_null(),
            "ggml refuses the file"
        );
        (Self(file), context)
    }

    fn set(&self, key: &str, value: &Value) {
        let key = CString::new(key).unwrap();
        let key = key.as_ptr();
        // SAFETY: key and values are alive, and as many as is said.
        unsafe {
            match value {
                Value::U8(v) => sys::gguf_set_val_u8(self.0, key, *v),
                Value::I8(v) => sys::gguf_set_val_i8(self.0, key, *v),
                Value::U16(v) => sys::gguf_set_val_u16(self.0, key, *v),
                Value::I16(v) => sys::gguf_set_val_i16(self.0, key, *v),
                Value::U32(v) => sys::gguf_set_val_u32(self.0, key, *v),
                Value::I32(v) => sys::gguf_set_val_i32(self.0, key, *v),
                Value::F32(v) => sys::gguf_set_val_f32(self.0, key, *v),
                Value::Bool(v) => sys::gguf_set_val_bool(self.0, key, *v),
                Value::U64(v) => sys::gguf_set_val_u64(self.0, key, *v),
                Value::I64(v) => sys::gguf_set_val_i64(self.0, key, *v),
                Value::F64(v) => sys::gguf_set_val_f64(self.0, key, *v),
                Value::String(text) => {
                    let text = CString::new(text.as_str()).unwrap();
                    sys::gguf_set_val_str(self.0, key, text.as_ptr());
                }
                Value::Array(Array::String(texts)) => {
                    let texts = texts
                        .iter()
                        .map(|text| CString::new(text.as_str()).unwrap());
                    let texts: Vec<_> = texts.collect();
                    let mut all: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
                    sys::gguf_set_arr_str(self.0, key, all.as_mut_ptr(), all.len());
                }
                Value::Array(array) => {
                    let bytes = values_of(array);
                    let value_type = array.value_type() as sys::gguf_type;
                    let data: *const c_void = bytes.as_ptr().cast();
                    sys::gguf_set_arr_data(self.0, key, value_type, data, array.len());
                }
            }
        }
    }

    /// Whether the key of this number is this one and has this value.
    fn has(&self, index: i64, key: &str, value: &Value) {
        // SAFETY: the index is below the number of keys; each getter is asked for the type that was just compared.
        unsafe {
            assert_eq!(text(sys::gguf_get_key(self.0, index)), key);
            let value_type = sys::gguf_get_kv_type(self.0, index);
            assert_eq!(value_type, value.value_type() as sys::gguf_type, "{key}");
            match value {
                Value::String(wanted) => {
                    assert_eq!(text(sys::gguf_get_val_str(self.0, index)), wanted);
                }
                Value::Array(array) => {
                    let element = sys::gguf_get_arr_type(self.0, index);
                    assert_eq!(element, array.value_type() as sys::gguf_type, "{key}");
                    assert_eq!(sys::gguf_get_arr_n(self.0, index), array.len(), "{key}");
                    if let Array::String(texts) = array {
                        for (i, wanted) in texts.iter().enumerate() {
                            assert_eq!(text(sys::gguf_get_arr_str(self.0, index, i)), wanted);
                        }
                        return;
                    }
                    let wanted = values_of(array);
                    let data = sys::gguf_get_arr_data(self.0, index).cast();
                    assert_eq!(bytes(data, wanted.len()), wanted, "{key}");
                }
                scalar => {
                    let array = values_of_scalar(scalar);
                    let data = sys::gguf_get_val_data(self.0, index).cast();
                    assert_eq!(bytes(data, array.len()), array, "{key}");
                }
            }
        }
    }
}

/// # Safety
/// The text must be alive.
unsafe fn text<'t>(text: *const std::ffi::c_char) -> &'t str {
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

/// # Safety
/// As many bytes must be there.
unsafe fn bytes(data: *const u8, len: usize) -> Vec<u8> {
    match len {
        0 => Vec::new(),
        // SAFETY: the caller says so.
        _ => unsafe { (*slice_from_raw_parts(data, len)).to_vec() },
    }
}

/// The bytes of an array's values, as ggml keeps them.
fn values_of(array: &Array) -> Vec<u8> {
    use bytemuck::cast_slice;
    match array {
        Array::U8(v) => v.clone(),
        Array::I8(v) => cast_slice(v).to_vec(),
        Array::U16(v) => cast_slice(v).to_vec(),
        Array::I16(v) => cast_slice(v).to_vec(),
        Array::U32(v) => cast_slice(v).to_vec(),
        Array::I32(v) => cast_slice(v).to_vec(),
        Array::F32(v) => cast_slice(v).to_vec(),
        Array::Bool(v) => v.iter().map(|&v| u8::from(v)).collect(),
        Array::U64(v) => cast_slice(v).to_vec(),
        Array::I64(v) => cast_slice(v).to_vec(),
        Array::F64(v) => cast_slice(v).to_vec(),
        Array::String(_) | Array::Array(_) => unreachable!("not in this file"),
    }
}

fn values_of_scalar(value: &Value) -> Vec<u8> {
    match value {
        Value::U8(v) => v.to_ne_bytes().to_vec(),
        Value::I8(v) => v.to_ne_bytes().to_vec(),
        Value::U16(v) => v.to_ne_bytes().to_vec(),
        Value::I16(v) => v.to_ne_bytes().to_vec(),
        Value::U32(v) => v.to_ne_bytes().to_vec(),
        Value::I32(v) => v.to_ne_bytes().to_vec(),
        Value::F32(v) => v.to_ne_bytes().to_vec(),
        Value::Bool(v) => vec![u8::from(*v)],
        Value::U64(v) => v.to_ne_bytes().to_vec(),
        Value::I64(v) => v.to_ne_bytes().to_vec(),
        Value::F64(v) => v.to_ne_bytes().to_vec(),
        Value::String(_) | Value::Array(_) => unreachable!("compared before"),
    }
}

const ALIGNMENTS: [Option<u32>; 5] = [None, Some(1), Some(8), Some(64), Some(4096)];

#[test]
fn ggml_reads_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ours.gguf");
    for alignment in ALIGNMENTS {
        let content = Content::everything(alignment);
        std::fs::write(&path, content.ours()).unwrap();
        let (file, context) = File::open(&path);
        // SAFETY: indices are below the counts that are compared first; the tensors live until the context is freed.
        unsafe {
            assert_eq!(sys::gguf_get_version(file.0), 3);
            assert_eq!(
                sys::gguf_get_alignment(file.0),
                alignment.unwrap_or(32) as usize
            );
            assert_eq!(sys::gguf_get_n_kv(file.0), content.keys.len() as i64);
            for (index, (key, value)) in content.keys.iter().enumerate() {
                file.has(index as i64, key, value);
            }
            assert_eq!(
                sys::gguf_get_n_tensors(file.0),
                content.tensors.len() as i64
            );
            for (name, dtype, shape, values) in &content.tensors {
                let name = CString::new(name.as_str()).unwrap();
                let tensor = sys::ggml_get_tensor(context, name.as_ptr());
                assert!(!tensor.is_null());
                assert_eq!((*tensor).type_, *dtype as sys::ggml_type);
                assert_eq!((*tensor).ne.map(|n| n as usize), shape.ne());
                assert_eq!(&bytes((*tensor).data.cast(), values.len()), values);
            }
            sys::ggml_free(context);
        }
    }
}

#[test]
fn ggml_writes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.gguf");
    // ggml's writer lays files out by 32 whatever the key says, so that its own reader refuses what it writes for 64.
    for alignment in [None, Some(32)] {
        let content = Content::everything(alignment);
        assert!(content.ours() == content.by_ggml(&path), "{alignment:?}");
    }
    let empty = Content {
        keys: vec![("k".into(), 1_u32.into())],
        tensors: vec![],
    };
    assert_eq!(empty.ours(), empty.by_ggml(&path));
}

#[test]
fn what_ggml_writes_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.gguf");
    let content = Content::everything(Some(16));
    content.by_ggml(&path);
    let mut file = Gguf::open(&path).unwrap();
    let keys: Vec<_> = file
        .metadata()
        .iter()
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect();
    assert_eq!(keys, content.keys);
    assert_eq!(file.tensors().len(), content.tensors.len());
    for (name, dtype, shape, bytes) in &content.tensors {
        let info = file.tensor(name).unwrap();
        assert_eq!((info.dtype(), info.shape()), (*dtype, *shape));
        assert_eq!(&file.read_bytes(name).unwrap(), bytes);
    }
}

#[test]
fn the_sources_that_ggml_refuses_are_only_those_that_we_say() {
    // Arrays of arrays are the one thing that is written here and refused by ggml.
    let nested = Array::Array(vec![Array::U8(vec![1])]);
    let bytes = Builder::new()
        .set("k", nested)
        .unwrap()
        .begin(Vec::new())
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(Gguf::read(Cursor::new(&bytes)).unwrap().metadata().len(), 1);
    Device::cpu().unwrap();
    let params = sys::gguf_init_params {
        no_alloc: true,
        ctx: null_mut(),
    };
    // SAFETY: the buffer has as many bytes.
    let refused = unsafe { sys::gguf_init_from_buffer(bytes.as_ptr().cast(), bytes.len(), params) };
    assert!(refused.is_null());
}
