//! What is written and read again is the same, for random files; and what the reader takes beyond what is written here.

use std::io::Cursor;

use ggml_rs::files::gguf::{Array, Builder, Gguf, Value};
use ggml_rs::{DType, Shape};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::raw::Raw;

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

/// Arrays, up to three deep.
fn arrays() -> impl Strategy<Value = Array> {
    let flat = prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(Array::U8),
        vec(any::<i8>(), 0..20).prop_map(Array::I8),
        vec(any::<u16>(), 0..20).prop_map(Array::U16),
        vec(any::<i16>(), 0..20).prop_map(Array::I16),
        vec(any::<u32>(), 0..20).prop_map(Array::U32),
        vec(any::<i32>(), 0..20).prop_map(Array::I32),
        vec(any::<f32>(), 0..20).prop_map(Array::F32),
        vec(any::<bool>(), 0..20).prop_map(Array::Bool),
        vec(text(), 0..20).prop_map(Array::String),
        vec(any::<u64>(), 0..20).prop_map(Array::U64),
        vec(any::<i64>(), 0..20).prop_map(Array::I64),
        vec(any::<f64>(), 0..20).prop_map(Array::F64),
    ];
    flat.prop_recursive(2, 16, 4, |inner| vec(inner, 0..4).prop_map(Array::Array))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        text().prop_map(Value::String),
        arrays().prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
    ]
}

/// A type, and a shape of a few blocks.
fn tensor() -> impl Strategy<Value = (DType, Shape, u8)> {
    let dims = (1..4_usize, vec(1..4_usize, 0..=3));
    (0..DType::ALL.len(), dims, any::<u8>()).prop_map(|(dtype, (blocks, rows), fill)| {
        let dtype = DType::ALL[dtype];
        let mut dims = vec![blocks * dtype.block_len()];
        dims.extend(rows);
        (dtype, Shape::new(&dims).unwrap(), fill)
    })
}

type Tensors = Vec<(String, DType, Shape, Vec<u8>)>;

fn write(keys: &[(String, Value)], tensors: &Tensors) -> Vec<u8> {
    let builder = keys.iter().fold(Builder::new(), |builder, (key, value)| {
        builder.set(key, value.clone()).unwrap()
    });
    let builder = tensors
        .iter()
        .fold(builder, |builder, (name, dtype, shape, _)| {
            builder.tensor(name, *dtype, *shape).unwrap()
        });
    let mut writer = builder.begin(Vec::new()).unwrap();
    for (name, .., bytes) in tensors {
        writer.write(name, bytes).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> (Vec<(String, Value)>, Tensors) {
    let mut file = Gguf::read(Cursor::new(bytes)).unwrap();
    let keys = file.metadata().iter();
    let keys = keys
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect();
    let infos = file.tensors().to_vec();
    let tensors = infos.iter().map(|info| {
        let bytes = file.read_bytes(info.name()).unwrap();
        (info.name().to_owned(), info.dtype(), info.shape(), bytes)
    });
    let tensors = tensors.collect();
    (keys, tensors)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        keys in btree_map("[a-z.]{1,8}|\\PC{1,8}", value(), 0..8),
        tensors in btree_map("[a-z.]{1,20}", tensor(), 0..6),
        alignment in prop::option::of(0..10_u32),
    ) {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.extend(alignment.map(|bits| ("general.alignment".to_owned(), (1_u32 << bits).into())));
        let tensors = tensors.into_iter().map(|(name, (dtype, shape, fill))| {
            let bytes = (0..shape.bytes(dtype).unwrap()).map(|i| fill.wrapping_mul(i as u8) ^ fill);
            (name, dtype, shape, bytes.collect())
        });
        let tensors: Tensors = tensors.collect();
        let bytes = write(&keys, &tensors);
        let (keys_again, tensors_again) = read(&bytes);
        // NaNs are not equal to themselves, their bytes are: so files are compared, and only names beside them.
        let names = |keys: &[(String, Value)]| keys.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        prop_assert_eq!(names(&keys_again), names(&keys));
        prop_assert_eq!(&tensors_again, &tensors);
        prop_assert!(write(&keys_again, &tensors_again) == bytes);
    }
}

#[test]
fn version_2_is_read() {
    let mut raw = Raw::new(1, 1)
        .key("k", 4)
        .u32(7)
        .tensor("t", &[2], 0, 0)
        .data(8);
    raw.0[4] = 2;
    let mut file = Gguf::read(Cursor::new(&raw.0)).unwrap();
    assert_eq!(file.header().version(), 2);
    assert_eq!(file.metadata().get::<u32>("k").unwrap(), 7);
    assert_eq!(file.read_f32("t").unwrap(), [0.0; 2]);
}

#[test]
fn gaps_any_order_and_what_stands_behind_are_allowed() {
    let raw = Raw::new(2, 0)
        .tensor("b", &[1], 0, 96)
        .tensor("a", &[8, 1, 1, 1], 0, 0)
        .data(1000);
    let file = Gguf::read(Cursor::new(&raw.0)).unwrap();
    let names: Vec<_> = file.tensors().iter().map(|info| info.name()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(file.tensor("a").unwrap().shape().ne(), [8, 1, 1, 1]);
    // A tensor without dimensions has one value.
    let raw = Raw::new(1, 0).tensor("scalar", &[], 0, 0).data(4);
    let file = Gguf::read(Cursor::new(&raw.0)).unwrap();
    assert_eq!(file.tensor("scalar").unwrap().shape().ne(), [1; 4]);
}

#[test]
fn a_key_of_another_type_names_both() {
    let builder = Builder::new()
        .set("count", 7_u64)
        .unwrap()
        .set("texts", vec![String::new()])
        .unwrap();
    let bytes = builder.begin(Vec::new()).unwrap().finish().unwrap();
    let file = Gguf::read(Cursor::new(&bytes)).unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata.get::<u64>("count").unwrap(), 7);
    assert_eq!(metadata.get::<&[String]>("texts").unwrap().len(), 1);
    assert_eq!(metadata.find::<u32>("other").unwrap(), None);
    let text = |error: ggml_rs::Error| error.to_string();
    assert_eq!(
        text(metadata.get::<u32>("count").unwrap_err()),
        "file: key `count`: is u64, not u32"
    );
    assert_eq!(
        text(metadata.find::<&str>("count").unwrap_err()),
        "file: key `count`: is u64, not string"
    );
    assert_eq!(
        text(metadata.get::<&[f32]>("texts").unwrap_err()),
        "file: key `texts`: is array of string, not array of f32 (`&[String]` in Rust)"
    );
    assert_eq!(
        text(metadata.get::<u32>("other").unwrap_err()),
        "file: key `other`: the file has none of this name"
    );
}
