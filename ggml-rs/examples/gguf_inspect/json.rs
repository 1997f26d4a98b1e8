//! The file as one JSON object.

use std::io::{self, Write};

use ggml_rs::files::gguf::{Array, Header, Value};
use serde_json::{Value as Json, json};

pub fn write(header: &Header, filter: &str, to: &mut impl Write) -> io::Result<()> {
    let keys = header.metadata().iter();
    let keys = keys.filter(|(key, _)| key.contains(filter)).map(
        |(key, value)| json!({ "key": key, "type": value.type_name(), "value": convert(value) }),
    );
    let tensors = header.tensors().iter();
    let tensors = tensors
        .filter(|info| info.name().contains(filter))
        .map(|info| {
            json!({
                "name": info.name(),
                "type": info.dtype().name(),
                "ne": info.shape().ne(),
                "bytes": info.bytes(),
                "offset": info.offset(),
            })
        });
    let whole = json!({
        "version": header.version(),
        "alignment": header.metadata().alignment(),
        "data_offset": header.data_offset(),
        // A list: the order of keys means something, and JSON objects have none.
        "metadata": keys.collect::<Vec<_>>(),
        "tensors": tensors.collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *to, &whole)?;
    writeln!(to)
}

fn convert(value: &Value) -> Json {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::F32(v) => float(f64::from(*v), v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Array(v) => convert_array(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F64(v) => float(*v, v),
    }
}

fn convert_array(array: &Array) -> Json {
    match array {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::F32(v) => v.iter().map(|v| float(f64::from(*v), v)).collect(),
        Array::Bool(v) => json!(v),
        Array::String(v) => json!(v),
        Array::Array(v) => v.iter().map(convert_array).collect(),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F64(v) => v.iter().map(|v| float(*v, v)).collect(),
    }
}

/// JSON has no number for NaN and infinities: they become texts, which null would hide.
fn float(value: f64, shown: impl ToString) -> Json {
    match value.is_finite() {
        true => json!(value),
        false => json!(shown.to_string()),
    }
}
