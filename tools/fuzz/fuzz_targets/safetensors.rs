//! Any bytes: the safetensors reader does not panic and takes no more memory than they deserve; what it accepts can be read to the end.
#![no_main]

use std::io::Cursor;

use ggml_rs::files::safetensors::SafeTensors;
use ggml_rs_fuzz::{Counting, seeds, within};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(init: seeds(examples), |data: &[u8]| check(data));

fn check(data: &[u8]) {
    // The header's text, the parsed header and our own: a tensor's shortest description has some 50 bytes.
    let read = within((64 << 10) + 64 * data.len(), || SafeTensors::read(Cursor::new(data)));
    let mut file = match read {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let infos = file.tensors().to_vec();
    let mut total = 0;
    for info in &infos {
        let bytes = file.read_bytes(info.name()).expect("a place that was checked");
        assert_eq!(bytes.len(), info.bytes());
        assert_eq!(info.shape().bytes(info.dtype()), Ok(info.bytes()));
        total += bytes.len();
    }
    // Nothing is shared, so no more was read than there is.
    assert!(total <= data.len());
}

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 1);
    bytes
}

fn examples() -> Vec<Vec<u8>> {
    vec![
        file("{}", 0),
        file(r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#, 24),
        file(
            r#"{"__metadata__":{"k":"v"},"b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"c":{"dtype":"I64","shape":[1],"data_offsets":[2,10]}}"#,
            10,
        ),
        file(
            r#"{"d":{"dtype":"F16","shape":[1,1,1,2],"data_offsets":[0,4]},"e":{"dtype":"I8","shape":[3],"data_offsets":[4,7]}}   "#,
            7,
        ),
    ]
}
