//! The output for a file that is written here, and the errors for what is none.

use clap::Parser;
use ggml_rs::DType;
use ggml_rs::files::gguf::{Array, Builder};
use serde_json::{Value as Json, json};

use super::{Arguments, run};

fn file() -> tempfile::NamedTempFile {
    let nested = Array::Array(vec![Array::U8(vec![1, 2]), Array::Bool(vec![true])]);
    let builder = Builder::new()
        .set("general.name", "a test\u{1b}[1m")
        .and_then(|b| b.set("numbers", (0..10_u32).collect::<Vec<_>>()))
        .and_then(|b| b.set("floats", vec![0.5_f32, f32::NAN]))
        .and_then(|b| b.set("nested", nested))
        .and_then(|b| b.tensor("blk.0.attn", DType::Q8_0, [32, 4]))
        .and_then(|b| b.tensor("bias", DType::F32, [3]));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = builder.unwrap().begin(&mut file).unwrap();
    writer.write("blk.0.attn", &[0; 136]).unwrap();
    writer.write_f32("bias", &[0.0; 3]).unwrap();
    writer.finish().unwrap();
    file
}

fn inspect(path: &std::path::Path, arguments: &[&str]) -> Result<String, String> {
    let line = ["gguf_inspect", path.to_str().unwrap()];
    let arguments = Arguments::parse_from(line.iter().chain(arguments));
    let mut output = Vec::new();
    run(&arguments, &mut output).map_err(|failure| failure.to_string())?;
    Ok(String::from_utf8(output).unwrap())
}

#[test]
fn the_table_has_a_line_for_each_key_and_tensor() {
    let file = file();
    let text = inspect(file.path(), &[]).unwrap();
    let wanted = "\
version    3
alignment  32
keys       4
tensors    2, 148 bytes from byte DATA

key           type      value
general.name  string    \"a test\\u{1b}[1m\"
numbers       u32[10]   [0, 1, 2, 3, 4, 5, ...]
floats        f32[2]    [0.5, NaN]
nested        array[2]  [[1, 2], [true]]

tensor      type  ne             bytes  offset
blk.0.attn  q8_0  [32, 4, 1, 1]    136       0
bias        f32   [3, 1, 1, 1]      12     160
";
    // 192 bytes of data, padding included, end the file.
    let data = std::fs::metadata(file.path()).unwrap().len() - 192;
    assert_eq!(text, wanted.replace("DATA", &data.to_string()));
    let some = inspect(file.path(), &["--filter", "attn", "--values", "1"]).unwrap();
    assert!(some.contains("blk.0.attn") && !some.contains("bias") && !some.contains("key  "));
}

#[test]
fn json_has_everything() {
    let file = file();
    let text = inspect(file.path(), &["--output", "json"]).unwrap();
    let json: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(json["version"], 3);
    assert_eq!(json["metadata"][1]["value"][9], 9);
    assert_eq!(json["metadata"][2]["value"], json!([0.5, "NaN"]));
    assert_eq!(json["metadata"][3]["value"], json!([[1, 2], [true]]));
    let bias =
        json!({ "name": "bias", "type": "f32", "ne": [3, 1, 1, 1], "bytes": 12, "offset": 160 });
    assert_eq!(json["tensors"][1], bias);
}

#[test]
fn what_is_no_file_gives_one_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"GGUF\x09\0\0\0").unwrap();
    let error = inspect(file.path(), &[]).unwrap_err();
    assert!(
        error.lines().count() == 1 && error.contains("byte 4: version 9"),
        "{error}"
    );
    let missing = file.path().with_extension("missing");
    let error = inspect(&missing, &[]).unwrap_err();
    assert!(
        error.lines().count() == 1 && error.contains(".missing: header: "),
        "{error}"
    );
}

#[test]
fn wrong_arguments_and_help_have_their_exit_codes() {
    let parse = |arguments: &[&str]| Arguments::try_parse_from(arguments).unwrap_err();
    let wrong = parse(&["gguf_inspect", "x", "--output", "yaml"]);
    assert_eq!(wrong.exit_code(), 2);
    let help = parse(&["gguf_inspect", "--help"]);
    assert_eq!(help.exit_code(), 0);
    let help = help.to_string();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
}
