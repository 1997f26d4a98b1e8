//! Parameters saved and loaded, on every device.

use std::io::Cursor;

use ggml_rs::DType::{BF16, F16, F32, I32, Q4_K, Q8_0};
use ggml_rs::files::gguf::{Builder, Gguf};
use ggml_rs::files::{Fault, Place};
use ggml_rs::{Device, Error, Params, Result};

use crate::common::values;

fn params(device: Device) -> Params {
    let params = Params::builder()
        .tensor("f32", F32, [5, 3])
        .and_then(|b| b.tensor("f16", F16, [7]))
        .and_then(|b| b.tensor("bf16", BF16, [2, 2, 2, 2]))
        .and_then(|b| b.tensor("q8", Q8_0, [64, 3]))
        .and_then(|b| b.tensor("q4", Q4_K, [256, 2]))
        .and_then(|b| b.tensor("ids", I32, [3]))
        .and_then(|b| b.allocate(device))
        .unwrap();
    for (seed, param) in params.iter().enumerate() {
        match param.dtype() {
            I32 => param.set_bytes(bytemuck::cast_slice(&[1, -2, 3])).unwrap(),
            _ => {
                let values = values(param.shape().elements(), seed as u64);
                param.set_f32(&values).unwrap();
            }
        }
    }
    params
}

fn equal(a: &Params, b: &Params) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b.iter()) {
        assert_eq!(
            (a.name(), a.dtype(), a.shape()),
            (b.name(), b.dtype(), b.shape())
        );
        assert_eq!(a.read_bytes().unwrap(), b.read_bytes().unwrap(), "{a:?}");
    }
}

/// Every device that holds memory of its own or the host's.
fn devices() -> Vec<Device> {
    let names = ["CPU", "MTL0"];
    names
        .iter()
        .filter_map(|name| Device::by_name(name).ok())
        .collect()
}

#[test]
fn what_is_saved_on_one_device_loads_on_each() {
    for from in devices() {
        let saved = params(from);
        let bytes = Builder::new().save(Vec::new(), saved.iter()).unwrap();
        for to in devices() {
            let mut file = Gguf::read(Cursor::new(&bytes)).unwrap();
            let loaded = file.load(to).unwrap();
            assert_eq!(loaded.device(), to);
            equal(&saved, &loaded);
            loaded.zero().unwrap();
            file.load_into(&loaded).unwrap();
            equal(&saved, &loaded);
        }
    }
}

#[test]
fn a_part_can_be_loaded_and_read() {
    let cpu = Device::cpu().unwrap();
    let saved = params(cpu);
    let bytes = Builder::new().save(Vec::new(), saved.iter()).unwrap();
    let mut file = Gguf::read(Cursor::new(&bytes)).unwrap();
    let floats = file
        .load_where(cpu, |info| info.dtype().is_float())
        .unwrap();
    assert_eq!(floats.len(), 3);
    for name in ["f32", "f16", "q8", "q4"] {
        let param = saved.get(name).unwrap();
        assert_eq!(file.read_f32(name).unwrap(), param.read_f32().unwrap());
    }
    assert!(matches!(file.read_f32("ids"), Err(Error::DType(_))));
    let nothing = file.load_where(cpu, |_| false);
    assert!(matches!(nothing, Err(Error::Param(_))));
}

fn file_error<T>(result: Result<T>) -> (Place, Fault) {
    match result.err() {
        Some(Error::File(error)) => (error.place, error.fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parameters_that_do_not_fit_the_file_stay_as_they_are() {
    let cpu = Device::cpu().unwrap();
    let bytes = Builder::new().save(Vec::new(), params(cpu).iter()).unwrap();
    let mut file = Gguf::read(Cursor::new(&bytes)).unwrap();
    let others = Params::builder()
        .tensor("f32", F32, [5, 3])
        .and_then(|b| b.tensor("f16", F32, [7]))
        .and_then(|b| b.allocate(cpu))
        .unwrap();
    others.zero().unwrap();
    let (place, fault) = file_error(file.load_into(&others));
    assert_eq!(place, Place::Tensor("f16".into()));
    assert!(
        matches!(fault, Fault::Mismatch(text) if text.contains("f16 [7, 1, 1, 1]") && text.contains("is f32 [7"))
    );
    assert_eq!(others.get("f32").unwrap().read_f32().unwrap(), [0.0; 15]);
    let missing = Params::builder().tensor("other", F32, [1]).unwrap();
    let missing = missing.allocate(cpu).unwrap();
    let (place, fault) = file_error(file.load_into(&missing));
    assert_eq!(
        (place, fault),
        (Place::Tensor("other".into()), Fault::Missing)
    );
}

#[test]
fn a_parameter_without_values_is_not_saved() {
    let params = Params::builder().tensor("w", F32, [1]).unwrap();
    let params = params.allocate(Device::cpu().unwrap()).unwrap();
    let mut to = Vec::new();
    let saved = Builder::new().save(&mut to, params.iter());
    assert!(matches!(saved, Err(Error::Param(_))));
    assert!(to.is_empty());
}

#[test]
fn an_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.gguf");
    let text = Gguf::open(&path).unwrap_err().to_string();
    assert!(text.contains("none.gguf"), "{text}");
    std::fs::write(&path, b"GGUF").unwrap();
    let text = Gguf::open(&path).unwrap_err().to_string();
    assert!(
        text.contains("none.gguf: header, byte 4: the file ends here"),
        "{text}"
    );
    let bytes = Builder::new().save(Vec::new(), params(Device::cpu().unwrap()).iter());
    std::fs::write(&path, bytes.unwrap()).unwrap();
    let mut file = Gguf::open(&path).unwrap();
    assert!(
        file.tensor("x")
            .unwrap_err()
            .to_string()
            .contains("none.gguf: tensor `x`")
    );
    // What was whole when it was opened may be cut while it is read.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(600)
        .unwrap();
    let (place, fault) = file_error(file.read_bytes("ids"));
    assert_eq!(place, Place::Tensor("ids".into()));
    assert!(matches!(
        fault,
        Fault::Io {
            kind: std::io::ErrorKind::UnexpectedEof,
            ..
        }
    ));
}

/// Integers have a reader of their own, and the others say which.
#[test]
fn integers_are_read_from_files_and_parameters() {
    let saved = params(Device::cpu().unwrap());
    let ids = saved.get("ids").unwrap();
    assert_eq!(ids.read_i32().unwrap(), [1, -2, 3]);
    ids.set_i32(&[4, 5, -6]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let to = std::fs::File::create(&path).unwrap();
    Builder::new().save(to, saved.iter()).unwrap();
    let mut file = Gguf::open(&path).unwrap();
    assert_eq!(file.read_i32("ids").unwrap(), [4, 5, -6]);
    let said = |error: Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let tensor = format!("tensor `ids` of {}", path.display());
    let error = file.read_f32("ids").unwrap_err();
    said(
        error,
        &[
            "Gguf::read_f32()",
            &tensor,
            "i32 does not convert to f32: use read_i32",
        ],
    );
    let error = file.read_i32("f32").unwrap_err();
    said(error, &["tensor `f32` of", "f32 values: use read_f32"]);
    let error = ids.read_f32().unwrap_err();
    said(
        error,
        &[
            "Param::read_f32()",
            "parameter `ids`: i32 does not convert to f32: use read_i32",
        ],
    );
    let error = saved.get("v").unwrap_err();
    said(
        error,
        &["no parameter is named `v`; the parameters are `f32`, `f16`,"],
    );
}

#[test]
fn a_file_without_tensors_says_so() {
    let cpu = Device::cpu().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.gguf");
    let to = std::fs::File::create(&path).unwrap();
    Builder::new().save(to, []).unwrap();
    let text = Gguf::open(&path)
        .unwrap()
        .load(cpu)
        .unwrap_err()
        .to_string();
    let words = format!(
        "{} has no tensors, so there is nothing to load",
        path.display()
    );
    assert!(text.contains(&words), "{text}");
    let saved = params(cpu);
    let bytes = Builder::new().save(Vec::new(), saved.iter()).unwrap();
    let mut file = Gguf::read(Cursor::new(&bytes)).unwrap();
    let text = file.load_where(cpu, |_| false).unwrap_err().to_string();
    assert!(
        text.contains("none of the 6 tensors of the file is wanted"),
        "{text}"
    );
}
