//! What a writer refuses, and what it does when the system fails.

use std::io::{self, Write};

use ggml_rs::DType::F32;
use ggml_rs::files::gguf::{Array, Builder, MAX_NESTING};
use ggml_rs::files::{Fault, Place};
use ggml_rs::{Error, Result};

fn fault<T>(result: Result<T>) -> (Place, Fault) {
    match result.err() {
        Some(Error::File(error)) => (error.place, error.fault),
        other => panic!("{other:?}"),
    }
}

fn key_fault(builder: Result<Builder>) -> Fault {
    let (place, fault) = fault(builder);
    assert!(matches!(place, Place::Key(_)), "{place:?}");
    fault
}

#[test]
fn keys_that_no_reader_takes_are_refused() {
    let set = |key: &str| Builder::new().set(key, 1_u32);
    assert_eq!(key_fault(set("")), Fault::EmptyKey);
    assert_eq!(key_fault(set("a\0b")), Fault::NulInName);
    let long = Fault::LongName {
        bytes: 65_536,
        most: 65_535,
    };
    assert_eq!(key_fault(set(&"k".repeat(65_536))), long);
    let twice = set("k").and_then(|builder| builder.set("k", "text"));
    assert_eq!(key_fault(twice), Fault::Duplicate);
    for alignment in [0, 3, 1 << 21] {
        let fault = Fault::Alignment(u64::from(alignment));
        assert_eq!(key_fault(Builder::new().alignment(alignment)), fault);
    }
    let wrong = Builder::new().set("general.alignment", 64_u64);
    assert!(matches!(key_fault(wrong), Fault::WrongType { found, .. } if found == "u64"));
    let deep = (0..MAX_NESTING).fold(Array::U8(vec![]), |array, _| Array::Array(vec![array]));
    assert_eq!(
        key_fault(Builder::new().set("k", deep)),
        Fault::Nested { most: MAX_NESTING }
    );
}

#[test]
fn tensors_that_no_reader_takes_are_refused() {
    let tensor = |name: &str| Builder::new().tensor(name, F32, [1]);
    let (place, long) = fault(tensor(&"n".repeat(64)));
    assert_eq!(place, Place::Tensor("n".repeat(64)));
    assert_eq!(
        long,
        Fault::LongName {
            bytes: 64,
            most: 63
        }
    );
    assert_eq!(fault(tensor("a\0")).1, Fault::NulInName);
    let twice = tensor("t").and_then(|builder| builder.tensor("t", F32, [2]));
    assert_eq!(fault(twice).1, Fault::Duplicate);
    let blocks = Builder::new().tensor("t", ggml_rs::DType::Q8_0, [33]);
    assert!(matches!(blocks, Err(Error::Shape(_))));
    let huge = (0..5).try_fold(Builder::new(), |builder, i| {
        builder.tensor(&i.to_string(), F32, [1 << 30, 1 << 30])
    });
    let (place, overflow) = fault(huge.unwrap().begin(io::sink()));
    assert_eq!(
        (place, overflow),
        (Place::Tensor("3".into()), Fault::Overflow)
    );
}

#[test]
fn values_come_in_order_and_whole() {
    let two = || {
        let builder = Builder::new().tensor("a", F32, [1]);
        let builder = builder.and_then(|builder| builder.tensor("b", F32, [2]));
        builder.unwrap().begin(Vec::new()).unwrap()
    };
    let mut writer = two();
    assert!(
        matches!(fault(writer.write("b", &[0; 8])).1, Fault::Order(text) if text == "`a` is next")
    );
    assert!(matches!(
        fault(writer.write("a", &[0; 3])).1,
        Fault::Mismatch(_)
    ));
    // What was refused was not written: the file can still be finished.
    writer.write("a", &[0; 4]).unwrap();
    assert!(matches!(writer.write_f32("b", &[1.0]), Err(Error::File(_))));
    writer.write_f32("b", &[1.0, 2.0]).unwrap();
    assert!(matches!(fault(writer.write("c", &[])).1, Fault::Order(_)));
    writer.finish().unwrap();
    let (place, missing) = fault(two().finish());
    assert_eq!(place, Place::Tensor("a".into()));
    assert!(matches!(missing, Fault::Order(_)));
}

/// Takes this many bytes, then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        match taken {
            0 if !bytes.is_empty() => Err(io::Error::new(io::ErrorKind::StorageFull, "full")),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_failed_once_never_finishes() {
    let file = || {
        let builder = Builder::new().tensor("a", F32, [64]);
        builder.and_then(|b| b.tensor("b", F32, [64])).unwrap()
    };
    let (place, full) = fault(file().begin(Full(10)));
    assert_eq!(place, Place::Header);
    assert!(matches!(
        full,
        Fault::Io {
            kind: io::ErrorKind::StorageFull,
            ..
        }
    ));
    let mut writer = file().begin(Full(200)).unwrap();
    let (place, full) = fault(writer.write("a", &[0; 256]));
    assert_eq!(place, Place::Tensor("a".into()));
    assert!(matches!(full, Fault::Io { .. }));
    assert_eq!(fault(writer.write("b", &[0; 256])).1, Fault::Broken);
    assert_eq!(fault(writer.finish()).1, Fault::Broken);
}
