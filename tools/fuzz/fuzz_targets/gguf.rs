//! Any bytes: the GGUF reader does not panic and takes no more memory than they deserve. What it accepts, it reads again from what the
//! writer makes of it; and ggml's own reader accepts it too, where it lies as ggml wants it.
#![no_main]

use std::io::Cursor;
use std::ptr::null_mut;

use ggml_rs::files::gguf::{Array, Builder, Gguf, Value};
use ggml_rs::{DType, Device};
use ggml_rs_fuzz::{Counting, seeds, within};
use ggml_sys as sys;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(
    init: {
        seeds(examples);
        Device::cpu().expect("ggml runs here");
    },
    |data: &[u8]| check(data)
);

fn check(data: &[u8]) {
    // The reader's buffer, a message, and values that take more room than their bytes: a text of no bytes takes 24 for 8.
    let read = within((64 << 10) + 16 * data.len(), || Gguf::read(Cursor::new(data)));
    let mut file = match read {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let once = rewrite(&mut file);
    let mut again = Gguf::read(Cursor::new(&once[..])).expect("what was written is read");
    same(&mut file, &mut again);
    // Bytes and not values, because a NaN is not equal to itself.
    assert!(rewrite(&mut again) == once, "the second writing differs");
    if as_ggml_wants_it(&file) {
        assert!(ggml_accepts(data), "ggml refuses what was accepted");
    }
    if !nested(&file) {
        assert!(ggml_accepts(&once), "ggml refuses what was written");
    }
}

fn rewrite(file: &mut Gguf<Cursor<&[u8]>>) -> Vec<u8> {
    let builder = Builder::new().set_all(file.metadata()).expect("keys that were read");
    let infos = file.tensors().to_vec();
    let builder = infos.iter().fold(builder, |builder, info| {
        let added = builder.tensor(info.name(), info.dtype(), info.shape());
        added.expect("a tensor that was read")
    });
    let mut writer = builder.begin(Vec::new()).expect("memory takes every byte");
    let mut bytes = Vec::new();
    for info in &infos {
        file.read_into(info.name(), &mut bytes).expect("a place that was checked");
        writer.write(info.name(), &bytes).expect("in order");
    }
    writer.finish().expect("every tensor was written")
}

fn same(a: &mut Gguf<Cursor<&[u8]>>, b: &mut Gguf<Cursor<&[u8]>>) {
    let infos = a.tensors().to_vec();
    assert_eq!(infos.len(), b.tensors().len());
    assert_eq!(a.metadata().len(), b.metadata().len());
    for info in infos {
        let other = b.tensor(info.name()).expect("it was written");
        assert_eq!((info.dtype(), info.shape()), (other.dtype(), other.shape()));
        let bytes = a.read_bytes(info.name()).expect("read before");
        assert!(bytes == b.read_bytes(info.name()).expect("it was written"));
    }
}

/// Whether an array lies in an array, which ggml refuses.
fn nested(file: &Gguf<Cursor<&[u8]>>) -> bool {
    let mut values = file.metadata().iter();
    values.any(|(_, value)| matches!(value, Value::Array(Array::Array(_))))
}

/// Whether tensors follow each other without gaps, as ggml demands, and no array lies in an array.
fn as_ggml_wants_it(file: &Gguf<Cursor<&[u8]>>) -> bool {
    let alignment = u64::from(file.metadata().alignment());
    let mut end = 0_u64;
    for info in file.tensors() {
        if info.offset() != end {
            return false;
        }
        end = (end + info.bytes() as u64).next_multiple_of(alignment);
    }
    !nested(file)
}

fn ggml_accepts(data: &[u8]) -> bool {
    let params = sys::gguf_init_params {
        no_alloc: true,
        ctx: null_mut(),
    };
    // SAFETY: the buffer has as many bytes; what is made is freed once.
    unsafe {
        let file = sys::gguf_init_from_buffer(data.as_ptr().cast(), data.len(), params);
        if file.is_null() {
            return false;
        }
        sys::gguf_free(file);
    }
    true
}

/// Small files that together have every type of value and several of tensors.
fn examples() -> Vec<Vec<u8>> {
    let everything = || {
        Builder::new()
            .set("a", 1_u8)?
            .set("b", -1_i8)?
            .set("c", 1_u16)?
            .set("d", -1_i16)?
            .set("e", 1_u32)?
            .set("f", -1_i32)?
            .set("g", 0.5_f32)?
            .set("h", true)?
            .set("i", "text")?
            .set("j", 1_u64)?
            .set("k", -1_i64)?
            .set("l", 0.5_f64)?
            .set("m", vec![1_u16, 2])?
            .set("n", vec![true, false])?
            .set("o", vec!["one".to_owned(), "two".to_owned()])?
            .set("p", Array::Array(vec![Array::U8(vec![1]), Array::F64(vec![0.5])]))?
            .alignment(8)?
            .begin(Vec::new())?
            .finish()
    };
    let tensors = |alignment, dtypes: &[DType]| {
        let builder = Builder::new().alignment(alignment)?;
        let builder = dtypes.iter().try_fold(builder, |builder, dtype| {
            builder.tensor(dtype.name(), *dtype, [dtype.block_len(), 2])
        })?;
        let mut writer = builder.begin(Vec::new())?;
        for dtype in dtypes {
            writer.write(dtype.name(), &vec![1; 2 * dtype.block_bytes()])?;
        }
        writer.finish()
    };
    let files: [ggml_rs::Result<Vec<u8>>; 4] = [
        everything(),
        tensors(1, &[DType::F32]),
        tensors(32, &[DType::F32, DType::F16, DType::I8]),
        tensors(16, &[DType::Q8_0, DType::Q4_K, DType::I32, DType::F64]),
    ];
    files.map(|file| file.expect("a seed")).to_vec()
}
