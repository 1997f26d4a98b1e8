//! The file as lines for people.

use std::fmt::Display;
use std::io::{self, Write};

use ggml_rs::files::gguf::{Array, Header, Value};

/// How much of a text is shown.
const TEXT: usize = 60;

pub fn write(header: &Header, filter: &str, most: usize, to: &mut impl Write) -> io::Result<()> {
    let bytes: u64 = header
        .tensors()
        .iter()
        .map(|info| info.bytes() as u64)
        .sum();
    let metadata = header.metadata();
    writeln!(to, "version    {}", header.version())?;
    writeln!(to, "alignment  {}", metadata.alignment())?;
    writeln!(to, "keys       {}", metadata.len())?;
    writeln!(
        to,
        "tensors    {}, {bytes} bytes from byte {}",
        header.tensors().len(),
        header.data_offset()
    )?;
    let keys = metadata.iter().filter(|(key, _)| key.contains(filter));
    let keys =
        keys.map(|(key, value)| [escaped(key, usize::MAX), type_of(value), shown(value, most)]);
    rows(["key", "type", "value"], [false; 3], keys.collect(), to)?;
    let tensors = header.tensors().iter();
    let tensors = tensors
        .filter(|info| info.name().contains(filter))
        .map(|info| {
            [
                escaped(info.name(), usize::MAX),
                info.dtype().to_string(),
                info.shape().to_string(),
                info.bytes().to_string(),
                info.offset().to_string(),
            ]
        });
    let right = [false, false, false, true, true];
    rows(
        ["tensor", "type", "ne", "bytes", "offset"],
        right,
        tensors.collect(),
        to,
    )
}

fn type_of(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("{}[{}]", array.value_type(), array.len()),
        other => other.type_name(),
    }
}

/// A table under a line of titles; nothing without rows.
fn rows<const N: usize>(
    titles: [&str; N],
    right: [bool; N],
    rows: Vec<[String; N]>,
    to: &mut impl Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(to)?;
    let titles = titles.map(str::to_owned);
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&titles]);
        cells
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    for row in [&titles].into_iter().chain(&rows) {
        let cells = row
            .iter()
            .zip(widths)
            .zip(right)
            .map(|((cell, width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(to, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A value on one line.
fn shown(value: &Value, most: usize) -> String {
    match value {
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::F32(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F64(v) => v.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(array) => shown_array(array, most),
    }
}

fn shown_array(array: &Array, most: usize) -> String {
    match array {
        Array::U8(v) => list(v, most, u8::to_string),
        Array::I8(v) => list(v, most, i8::to_string),
        Array::U16(v) => list(v, most, u16::to_string),
        Array::I16(v) => list(v, most, i16::to_string),
        Array::U32(v) => list(v, most, u32::to_string),
        Array::I32(v) => list(v, most, i32::to_string),
        Array::F32(v) => list(v, most, f32::to_string),
        Array::Bool(v) => list(v, most, bool::to_string),
        Array::U64(v) => list(v, most, u64::to_string),
        Array::I64(v) => list(v, most, i64::to_string),
        Array::F64(v) => list(v, most, f64::to_string),
        Array::String(v) => list(v, most, |text| quoted(text)),
        Array::Array(v) => list(v, most, |array| shown_array(array, most)),
    }
}

fn list<T>(values: &[T], most: usize, show: impl Fn(&T) -> String) -> String {
    let mut shown: Vec<_> = values.iter().take(most).map(show).collect();
    if values.len() > most {
        shown.push("...".into());
    }
    format!("[{}]", shown.join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text, TEXT))
}

/// A text from a file, without what would end the line or speak to the terminal.
fn escaped(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == most {
            shown.push_str("...");
            break;
        }
        let piece: &dyn Display = match c.is_control() {
            true => &c.escape_default(),
            false => &c,
        };
        shown.push_str(&piece.to_string());
    }
    shown
}
