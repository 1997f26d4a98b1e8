//! Sparse files: as long as they claim to be, and next to nothing on the disk. A file's length is no bound on memory.

use std::io::{self, Read, Seek, SeekFrom};

use ggml_rs::Error;
use ggml_rs::files::gguf::{Builder, Gguf, ReadOptions};
use ggml_rs::files::{Fault, FileError, Place};

use super::memory::peak;
use super::raw::Raw;

const STRING: u32 = 8;
const ARRAY: u32 = 9;
const F32: u32 = 6;
const U8: u32 = 0;

/// A source of `len` bytes: a beginning, and zeros.
struct Zeros {
    begin: Vec<u8>,
    len: u64,
    at: u64,
}

impl Zeros {
    fn behind(begin: Raw, len: u64) -> Self {
        let begin = begin.0;
        Self { begin, len, at: 0 }
    }
}

impl Read for Zeros {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let begin = self.begin.get(self.at as usize..).unwrap_or_default();
        let bytes = if begin.is_empty() {
            let bytes = to.len().min((self.len - self.at) as usize);
            to[..bytes].fill(0);
            bytes
        } else {
            let bytes = begin.len().min(to.len());
            to[..bytes].copy_from_slice(&begin[..bytes]);
            bytes
        };
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl Seek for Zeros {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.len.checked_add_signed(by).unwrap(),
            SeekFrom::Current(by) => self.at.checked_add_signed(by).unwrap(),
        };
        Ok(self.at)
    }
}

fn refused(source: Zeros, options: ReadOptions) -> FileError {
    let (read, memory) = peak(|| Gguf::read_with(source, options));
    assert!(memory < 1 << 18, "{memory} bytes held");
    match read.map(drop) {
        Err(Error::File(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// A text, an array of numbers, one of texts without bytes, one of arrays without values, and one in another: each of 2 GiB or more.
#[test]
fn a_value_beyond_the_limit_is_refused_before_it_is_read() {
    const LONG: u64 = 1 << 31;
    let key = |value_type| Raw::new(0, 1).key("k", value_type);
    let claims = [
        (key(STRING).u64(LONG), 24 + LONG),
        (key(ARRAY).u32(F32).u64(LONG / 4), LONG),
        (key(ARRAY).u32(STRING).u64(LONG / 24), LONG / 24 * 24),
        (key(ARRAY).u32(ARRAY).u64(LONG / 32), LONG / 32 * 32),
        (key(ARRAY).u32(ARRAY).u64(1).u32(U8).u64(LONG), 32 + LONG),
    ];
    for (begin, bytes) in claims {
        let at = begin.len() - 8;
        let error = refused(Zeros::behind(begin, 2 * LONG), ReadOptions::default());
        let (bytes, most) = (bytes as usize, 256 << 20);
        let limit = "max_value_bytes";
        assert_eq!(error.fault, Fault::TooLarge { bytes, most, limit });
        assert_eq!(error.place, Place::Key("k".into()));
        assert_eq!(error.offset, Some(at));
        let text = error.to_string();
        let wanted = [
            "key `k`",
            "268435456 are allowed",
            "ReadOptions::max_value_bytes",
        ];
        assert!(wanted.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// Many values, each within the limit for one.
#[test]
fn values_beyond_the_limit_of_all_are_refused() {
    let text = "t".repeat(1000);
    let builder = (0..10).try_fold(Builder::new(), |builder, key| {
        builder.set(&format!("key{key}"), &*text)
    });
    let bytes = builder
        .unwrap()
        .begin(Vec::new())
        .unwrap()
        .finish()
        .unwrap();
    let read = |most| {
        let options = ReadOptions::default().max_metadata_bytes(most);
        Gguf::read_with(io::Cursor::new(&bytes), options).map(drop)
    };
    read(10 * 1024).unwrap();
    let error = read(10 * 1024 - 1).unwrap_err().to_string();
    assert!(error.contains("key `key9`"), "{error}");
    assert!(error.contains("ReadOptions::max_metadata_bytes"), "{error}");
}

/// The limit is exact, and can be raised as well as lowered.
#[test]
fn a_value_at_the_limit_is_read() {
    const LEN: u64 = 300 << 20;
    let source = || Zeros::behind(Raw::new(0, 1).key("k", STRING).u64(LEN), LEN + 64);
    let options = |most| ReadOptions::default().max_value_bytes(most);
    let whole = LEN as usize + size_of::<String>();
    refused(source(), ReadOptions::default());
    refused(source(), options(whole - 1));
    let file = Gguf::read_with(source(), options(whole)).unwrap();
    assert_eq!(
        file.metadata().get::<&str>("k").unwrap().len(),
        LEN as usize
    );
}

/// 20,000,000 texts without bytes take 480 MB, and arrays 640 MB, in a process that may have 200 MB more.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn memory_that_is_refused_is_an_error() {
    use crate::common::child::{in_a_child, limit_address_space};

    in_a_child("gguf::limits::memory_that_is_refused_is_an_error", || {
        limit_address_space(200 << 20);
        const COUNT: u64 = 20_000_000;
        for value_type in [STRING, ARRAY] {
            let begin = Raw::new(0, 1).key("k", ARRAY).u32(value_type).u64(COUNT);
            let source = Zeros::behind(begin, 64 + 12 * COUNT);
            let error = Gguf::read_with(source, super::sources::UNLIMITED).map(drop);
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Alloc { .. }), "{error}");
            assert!(error.to_string().contains("an array of key `k`"), "{error}");
        }
    });
}
