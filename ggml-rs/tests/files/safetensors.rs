//! safetensors files: what their own library writes is read, what is malformed is refused, what ggml cannot hold is named.
#![cfg(feature = "safetensors")]

use std::collections::HashMap;
use std::io::Cursor;

use ggml_rs::files::safetensors::SafeTensors;
use ggml_rs::files::{Fault, FileError, Place};
use ggml_rs::{DType, Device, Error, Params, Result};
use safetensors::tensor::{Dtype, TensorView, serialize};

/// A file of any header and this many bytes of data.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend((0..data).map(|i| i as u8));
    bytes
}

fn read(bytes: &[u8]) -> Result<SafeTensors<Cursor<&[u8]>>> {
    SafeTensors::read(Cursor::new(bytes))
}

fn refused(bytes: &[u8]) -> FileError {
    match read(bytes) {
        Err(Error::File(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_formats_library_writes_is_read() {
    let types = [
        (Dtype::F32, DType::F32, 4),
        (Dtype::F16, DType::F16, 2),
        (Dtype::BF16, DType::BF16, 2),
        (Dtype::F64, DType::F64, 8),
        (Dtype::I8, DType::I8, 1),
        (Dtype::I16, DType::I16, 2),
        (Dtype::I32, DType::I32, 4),
        (Dtype::I64, DType::I64, 8),
    ];
    let bytes: Vec<u8> = (0..2 * 3 * 5 * 8).map(|i| i as u8).collect();
    let tensors = types.map(|(dtype, ours, size)| {
        let view = TensorView::new(dtype, vec![2, 3, 5], &bytes[..30 * size]);
        (ours.name(), view.unwrap())
    });
    let texts = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let written = serialize(tensors, Some(texts)).unwrap();
    let mut file = read(&written).unwrap();
    assert_eq!(file.metadata()["format"], "pt");
    assert_eq!((file.tensors().len(), file.refused().len()), (8, 0));
    for (_, dtype, size) in types {
        let info = file.tensor(dtype.name()).unwrap();
        // Row-major there, ne order here.
        assert_eq!((info.dtype(), info.shape().ne()), (dtype, [5, 3, 2, 1]));
        assert_eq!(file.read_bytes(dtype.name()).unwrap(), bytes[..30 * size]);
    }
    for device in ["CPU", "MTL0"] {
        let Ok(device) = Device::by_name(device) else {
            continue;
        };
        let params = file.load(device).unwrap();
        for (_, dtype, size) in types {
            let param = params.get(dtype.name()).unwrap();
            assert_eq!(param.read_bytes().unwrap(), bytes[..30 * size]);
        }
    }
    // Integers and f64 do not convert without loss.
    assert!(matches!(file.read_f32("f64"), Err(Error::DType(_))));
    assert!(matches!(file.read_f32("i32"), Err(Error::DType(_))));
    assert_eq!(file.read_f32("f32").unwrap(), params_values(&bytes[..120]));
}

fn params_values(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn what_ggml_cannot_hold_is_named_and_hinders_nothing_else() {
    let long = "n".repeat(64);
    let header = format!(
        r#"{{"ok":{{"dtype":"F32","shape":[],"data_offsets":[0,4]}},
        "mask":{{"dtype":"BOOL","shape":[2],"data_offsets":[4,6]}},
        "five":{{"dtype":"I8","shape":[1,1,1,1,2],"data_offsets":[6,8]}},
        "none":{{"dtype":"F32","shape":[0,3],"data_offsets":[8,8]}},
        "{long}":{{"dtype":"I8","shape":[1],"data_offsets":[8,9]}}}}"#
    );
    let bytes = raw(&header, 9);
    let mut file = read(&bytes).unwrap();
    assert_eq!(file.tensor("ok").unwrap().shape().ne(), [1; 4]);
    assert_eq!(file.tensors().len(), 1);
    let faults: HashMap<_, _> = file.refused().iter().cloned().collect();
    assert_eq!(faults["mask"], Fault::TensorType("BOOL".into()));
    assert_eq!(faults["five"], Fault::Dimensions(5));
    assert!(matches!(&faults["none"], Fault::Shape { dims, .. } if dims == &[0, 3]));
    let most = 63;
    assert_eq!(faults[&long], Fault::LongName { bytes: 64, most });
    let text = file.read_bytes("mask").unwrap_err().to_string();
    assert_eq!(
        text,
        "file: tensor `mask`: tensor type BOOL, which ggml does not have"
    );
    let cpu = Device::cpu().unwrap();
    // Nothing is left out in silence.
    assert!(matches!(file.load(cpu), Err(Error::File(_))));
    let params = file.load_where(cpu, |_| true).unwrap();
    assert_eq!(params.len(), 1);
    let other = Params::builder().tensor("mask", DType::I8, [2]).unwrap();
    let error = file.load_into(&other.allocate(cpu).unwrap()).unwrap_err();
    assert!(error.to_string().contains("BOOL"), "{error}");
}

#[test]
fn malformed_files_are_refused() {
    let one = |shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let fault = |header: &str, data| refused(&raw(header, data)).fault;
    assert_eq!(refused(&[]).fault, Fault::Ends { needed: 8, left: 0 });
    let error = refused(&(1_u64 << 60).to_le_bytes());
    assert_eq!((&error.place, error.offset), (&Place::Header, Some(0)));
    assert!(matches!(error.fault, Fault::TooMany { count, room: 0, .. } if count == 1 << 60));
    let json = |fault| matches!(fault, Fault::Json(_));
    let headers = [
        "",
        "{",
        "[]",
        "{}}",
        "\u{feff}{}",
        r#"{"t":1}"#,
        r#"{"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#,
        &one("[-1]", "[0,4]"),
        &one("[1.5]", "[0,4]"),
        &one("[2]", "[0,4]"),
        &one("[1]", "[4,0]"),
        &one("[1]", "[1,5]"),
        &one("[4294967296,4294967296]", "[0,4]"),
        &one("[18446744073709551615]", "[0,4]"),
        &one("[99999999999999999999999]", "[0,4]"),
        // Two in one place.
        r#"{"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}"#,
        // A gap.
        r#"{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I8","shape":[1],"data_offsets":[3,4]}}"#,
    ];
    for header in headers {
        assert!(json(fault(header, 4)), "{header}");
    }
    assert!(json(fault(&"[".repeat(100_000), 0)));
    assert_eq!(
        fault(&one("[2]", "[0,8]"), 7),
        Fault::Ends { needed: 8, left: 7 }
    );
    assert!(json(fault(&one("[2]", "[0,8]"), 9)));
    // JSON's own place in the file: behind the length and what was right.
    let error = refused(&raw("{\"t\":?}", 0));
    assert_eq!(error.offset, Some(8 + 5), "{error}");
    // Not UTF-8.
    let mut bytes = raw("{\"t\":\"a\"}", 0);
    bytes[14] = 0xff;
    assert!(json(refused(&bytes).fault));
}

/// Readers differ in which of two they keep, so that what one shows is not what another loads.
#[test]
fn a_name_stands_once() {
    let twice = r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#;
    let error = refused(&raw(twice, 4));
    assert!(
        matches!(&error.fault, Fault::Json(text) if text.starts_with("`t` stands twice")),
        "{error}"
    );
}

#[test]
fn what_an_error_quotes_stays_on_its_line() {
    let header = r#"{"t":{"dtype":"\n\u001b[2J","shape":[1],"data_offsets":[0,4]}}"#;
    let error = refused(&raw(header, 4)).to_string();
    assert!(!error.contains(char::is_control), "{error:?}");
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let bytes = raw(
        r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
        8,
    );
    assert!(read(&bytes).is_ok());
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len}");
    }
}

#[test]
fn an_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, raw("{}", 1)).unwrap();
    let text = SafeTensors::open(&path).unwrap_err().to_string();
    assert!(
        text.contains("x.safetensors: header, byte 10: 1 bytes that belong to no tensor"),
        "{text}"
    );
}
