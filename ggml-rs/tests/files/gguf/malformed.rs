//! Malformed files by name: each has its own error, none costs memory, none panics.

use std::io::Cursor;

use ggml_rs::Error;
use ggml_rs::files::gguf::{ALIGNMENT_KEY, Builder, Gguf, MAX_NESTING};
use ggml_rs::files::{Fault, FileError, Place};

use super::memory::peak;
use super::raw::Raw;

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;

const F32: u32 = 0;
const Q8_0: u32 = 8;
const F64: u32 = 28;

/// What a reader may hold at once for a file that is refused: its buffer, and a little.
const MEMORY: usize = 32 << 10;

fn read(bytes: &[u8]) -> Result<Gguf<Cursor<&[u8]>>, Box<FileError>> {
    let (read, memory) = peak(|| Gguf::read(Cursor::new(bytes)));
    assert!(memory < MEMORY + 16 * bytes.len(), "{memory} bytes held");
    read.map_err(|error| match error {
        Error::File(error) => error,
        other => panic!("{other}"),
    })
}

struct Case {
    name: &'static str,
    raw: Raw,
    place: Place,
    offset: u64,
    fault: Fault,
}

/// The cases of one kind of mistake.
#[derive(Default)]
struct Corpus(Vec<Case>);

impl Corpus {
    fn add(&mut self, name: &'static str, raw: Raw, place: Place, offset: u64, fault: Fault) {
        self.0.push(Case {
            name,
            raw,
            place,
            offset,
            fault,
        });
    }
}

fn key(name: &str) -> Place {
    Place::Key(name.into())
}

fn tensor(name: &str) -> Place {
    Place::Tensor(name.into())
}

fn too_many(what: &'static str, count: u64, least: u64, left: u64) -> Fault {
    let room = left / least;
    Fault::TooMany {
        what,
        count,
        room,
        left,
    }
}

fn wrong_type(found: &str) -> Fault {
    Fault::WrongType {
        found: found.into(),
        wanted: "u32".into(),
    }
}

fn headers(corpus: &mut Corpus) {
    let mut add = |name, raw, offset, fault| corpus.add(name, raw, Place::Header, offset, fault);
    let start = |version: u32| Raw(b"GGUF".to_vec()).u32(version).u64(0).u64(0);
    add(
        "an empty file",
        Raw::default(),
        0,
        Fault::Ends { needed: 4, left: 0 },
    );
    let other = Raw(b"GGML".to_vec()).data(64);
    add("another magic", other, 0, Fault::Magic(*b"GGML"));
    add("version 0", start(0), 4, Fault::Version(0));
    add("version 1", start(1), 4, Fault::Version(1));
    add("version 4", start(4), 4, Fault::Version(4));
    add(
        "a big-endian file",
        start(3 << 24),
        4,
        Fault::BigEndian(3 << 24),
    );
    for count in [1, 1 << 32, 1 << 60, u64::MAX] {
        let raw = Raw::new(count, 0);
        add(
            "more tensors than fit",
            raw,
            8,
            too_many("tensors", count, 24, 8),
        );
        let raw = Raw::new(0, count);
        add(
            "more keys than fit",
            raw,
            16,
            too_many("keys", count, 14, 0),
        );
    }
}

fn keys(corpus: &mut Corpus) {
    let mut add = |name, raw: Raw, place, offset, fault| {
        // Room for whatever is claimed to follow, so that the fault itself is met.
        corpus.add(name, raw.bytes(&[0; 64]), place, offset, fault);
    };
    let first = Place::KeyAt(0);
    for bytes in [65_536, 1 << 60, u64::MAX] {
        let fault = Fault::LongName {
            bytes,
            most: 65_535,
        };
        add(
            "a long key",
            Raw::new(0, 1).u64(bytes),
            first.clone(),
            24,
            fault,
        );
    }
    let fault = too_many("bytes of text", 1000, 1, 64);
    add(
        "a key beyond the end",
        Raw::new(0, 1).u64(1000),
        first.clone(),
        24,
        fault,
    );
    add(
        "an empty key",
        Raw::new(0, 1).text(b""),
        key(""),
        24,
        Fault::EmptyKey,
    );
    let raw = Raw::new(0, 1).text(b"ab\xff").u32(U8);
    add(
        "a key that is not UTF-8",
        raw,
        first,
        34,
        Fault::Utf8 { at: 2 },
    );
    // ggml would read an alignment here. Found by the fuzzer.
    let hidden = format!("{ALIGNMENT_KEY}\0");
    let raw = Raw::new(0, 1).key(&hidden, U32).u32(93);
    add("a key with a NUL", raw, key(&hidden), 24, Fault::NulInName);
    let raw = Raw::new(0, 2).key("k", U8).bytes(&[1]).key("k", U8);
    add("a key twice", raw, key("k"), 38, Fault::Duplicate);
    for number in [13, 14, 255, u32::MAX] {
        let raw = Raw::new(0, 1).key("k", number);
        add(
            "an unknown type of value",
            raw,
            key("k"),
            33,
            Fault::ValueType(number),
        );
    }
    let raw = Raw::new(0, 1).key("k", BOOL).bytes(&[2]);
    add("a bool of 2", raw, key("k"), 37, Fault::Bool(2));
    for count in [1 << 20, 1 << 60, u64::MAX] {
        let raw = Raw::new(0, 1).key("k", STRING).u64(count);
        let fault = too_many("bytes of text", count, 1, 64);
        add("a string beyond the end", raw, key("k"), 37, fault);
    }
    let raw = Raw::new(0, 1).key("k", STRING).text(b"\xc3");
    add(
        "a string that is not UTF-8",
        raw,
        key("k"),
        45,
        Fault::Utf8 { at: 0 },
    );
}

fn arrays(corpus: &mut Corpus) {
    let mut add = |name, raw: Raw, offset, fault| {
        corpus.add(name, raw.bytes(&[2; 64]), key("k"), offset, fault);
    };
    let start =
        |value_type: u32, count: u64| Raw::new(0, 1).key("k", ARRAY).u32(value_type).u64(count);
    for (value_type, least) in [(U8, 1), (U32, 4), (STRING, 8), (ARRAY, 12), (U64, 8)] {
        // A product with the size of an element that overflows to little is among them.
        for count in [65, 1 << 32, 1 << 60, 1 << 61, (1 << 61) + 1, u64::MAX] {
            let fault = too_many("values", count, least, 64);
            add("a long array", start(value_type, count), 41, fault);
        }
    }
    add(
        "an array of no type",
        start(99, 0),
        37,
        Fault::ValueType(99),
    );
    add(
        "a bool of 2 in an array",
        start(BOOL, 3),
        49,
        Fault::Bool(2),
    );
    let nested = |depth: usize| {
        let outer = (1..depth).fold(Raw::new(0, 1).key("k", ARRAY), |raw, _| {
            raw.u32(ARRAY).u64(1)
        });
        outer.u32(U8).u64(0)
    };
    let fault = Fault::Nested { most: MAX_NESTING };
    let end = nested(MAX_NESTING + 1).len() - 12;
    add(
        "arrays too deep",
        nested(MAX_NESTING + 1),
        end,
        fault.clone(),
    );
    add("arrays much too deep", nested(100_000), end, fault);
    assert!(read(&nested(MAX_NESTING).0).is_ok());
    let inner = start(ARRAY, 1).u32(U64).u64(1 << 60);
    add(
        "a long array in an array",
        inner,
        53,
        too_many("values", 1 << 60, 8, 64),
    );
}

fn alignments(corpus: &mut Corpus) {
    let mut add = |name, raw: Raw, fault| {
        // Behind the header, the length and the name: the value's type.
        let offset = 24 + 8 + ALIGNMENT_KEY.len() as u64;
        corpus.add(name, raw.data(64), key(ALIGNMENT_KEY), offset, fault);
    };
    let start = |value_type| Raw::new(0, 1).key(ALIGNMENT_KEY, value_type);
    for alignment in [0, 3, 33, 1 << 21, 1 << 31, u32::MAX] {
        let fault = Fault::Alignment(u64::from(alignment));
        add(
            "an alignment that is none",
            start(U32).u32(alignment),
            fault,
        );
    }
    add(
        "an alignment of u64",
        start(U64).u64(1 << 40),
        wrong_type("u64"),
    );
    add("an alignment of i32", start(5).u32(32), wrong_type("i32"));
    add(
        "an alignment that is text",
        start(STRING).text(b"32"),
        wrong_type("string"),
    );
    let array = start(ARRAY).u32(U32).u64(1).u32(32);
    add(
        "an alignment in an array",
        array,
        wrong_type("array of u32"),
    );
}

fn descriptions(corpus: &mut Corpus) {
    let mut add = |name, raw: Raw, place, offset, fault| {
        corpus.add(name, raw.data(256), place, offset, fault);
    };
    let one = |dims: &[u64], dtype, offset| Raw::new(1, 0).tensor("t", dims, dtype, offset);
    let name = |name: &str| Raw::new(1, 0).tensor(name, &[1], F32, 0);
    let long = Fault::LongName {
        bytes: 64,
        most: 63,
    };
    add(
        "a long name",
        name(&"x".repeat(64)),
        Place::TensorAt(0),
        24,
        long,
    );
    add(
        "a name with a NUL",
        name("a\0b"),
        tensor("a\0b"),
        24,
        Fault::NulInName,
    );
    let twice = Raw::new(2, 0)
        .tensor("t", &[1], F32, 0)
        .tensor("t", &[1], F32, 32);
    add("a name twice", twice, tensor("t"), 57, Fault::Duplicate);
    for count in [5, 6, 1 << 31, u32::MAX] {
        let raw = Raw::new(1, 0).text(b"t").u32(count).bytes(&[1; 64]);
        let fault = Fault::Dimensions(u64::from(count));
        add("too many dimensions", raw, tensor("t"), 33, fault);
    }
    let shapes: [(&[u64], u32, &str); 9] = [
        (&[0], F32, "a dimension is 0"),
        (&[4, 0, 4], F32, "a dimension is 0"),
        (&[1 << 32, 1 << 32], F32, "elements overflows"),
        (
            &[1 << 16, 1 << 16, 1 << 16, 1 << 16],
            F32,
            "elements overflows",
        ),
        (&[u64::MAX], F32, "elements overflows"),
        (&[1 << 63, 2], F32, "elements overflows"),
        (&[1 << 60], F64, "overflows the address space"),
        (&[33], Q8_0, "not a multiple of q8_0's block of 32"),
        (&[16, 2], Q8_0, "not a multiple of q8_0's block of 32"),
    ];
    for (dims, dtype, detail) in shapes {
        let dims = dims.to_vec();
        let raw = one(&dims, dtype, 0);
        let detail = detail.into();
        add(
            "dimensions of no tensor",
            raw,
            tensor("t"),
            37,
            Fault::Shape { dims, detail },
        );
    }
    // Two that ggml has removed, and two that it never had.
    for number in [4, 31, 43, u32::MAX] {
        let fault = Fault::TensorType(number.to_string());
        add(
            "an unknown type of tensor",
            one(&[1], number, 0),
            tensor("t"),
            45,
            fault,
        );
    }
}

fn places(corpus: &mut Corpus) {
    let mut add = |name, raw: Raw, place, offset, fault| {
        corpus.add(name, raw.data(256), tensor(place), offset, fault);
    };
    let one = |dims: &[u64], offset| Raw::new(1, 0).tensor("t", dims, F32, offset);
    for offset in [1, 31, 33, u64::MAX] {
        let fault = Fault::Unaligned {
            offset,
            alignment: 32,
        };
        add("an unaligned offset", one(&[1], offset), "t", 49, fault);
    }
    for (dim, offset) in [
        (1, 256),
        (65, 0),
        (1, 1 << 60),
        (1, u64::MAX - 31),
        (9, 224),
        (8, u64::MAX - 31),
    ] {
        let fault = Fault::Beyond {
            offset,
            bytes: dim * 4,
            data: 256,
        };
        add("values beyond the end", one(&[dim], offset), "t", 49, fault);
    }
    let two = |first: (u64, u64), second: (u64, u64)| {
        let raw = Raw::new(2, 0).tensor("a", &[first.0], F32, first.1);
        raw.tensor("b", &[second.0], F32, second.1)
    };
    let overlaps = |other: &str| Fault::Overlaps {
        other: other.into(),
    };
    add(
        "two in one place",
        two((1, 0), (1, 0)),
        "b",
        82,
        overlaps("a"),
    );
    add(
        "two that overlap",
        two((9, 0), (1, 32)),
        "b",
        82,
        overlaps("a"),
    );
    add(
        "two that overlap, out of order",
        two((1, 32), (9, 0)),
        "a",
        49,
        overlaps("b"),
    );
    add(
        "one in another",
        two((64, 0), (1, 96)),
        "b",
        82,
        overlaps("a"),
    );
}

fn corpus() -> Vec<Case> {
    let mut corpus = Corpus::default();
    for part in [headers, keys, arrays, alignments, descriptions, places] {
        part(&mut corpus);
    }
    corpus.0
}

/// As the fault of a case, but for the wording of shapes, which another module tests.
fn alike(found: &Fault, wanted: &Fault) -> bool {
    match (found, wanted) {
        (
            Fault::Shape { dims, detail },
            Fault::Shape {
                dims: wanted,
                detail: part,
            },
        ) => dims == wanted && detail.contains(part.as_str()),
        _ => found == wanted,
    }
}

#[test]
fn each_mistake_has_its_error() {
    let cases = corpus();
    for case in &cases {
        let name = case.name;
        let error = read(&case.raw.0)
            .err()
            .unwrap_or_else(|| panic!("{name}: was read"));
        let as_wanted = (&error.place, error.offset) == (&case.place, Some(case.offset));
        assert!(
            as_wanted && alike(&error.fault, &case.fault),
            "{name}: {error:?}\nwanted {:?} at {}: {:?}",
            case.place,
            case.offset,
            case.fault
        );
        let text = error.to_string();
        assert!(
            text.contains(&case.offset.to_string()) && text.lines().count() == 1,
            "{text}"
        );
    }
    assert!(cases.len() > 80, "{}", cases.len());
}

#[test]
fn a_file_that_claims_the_world_takes_no_memory() {
    let claims = [
        Raw::new(1 << 60, 0),
        Raw::new(0, 1 << 60),
        Raw::new(0, 1).u64(1 << 60),
        Raw::new(0, 1).key("k", STRING).u64(1 << 60),
        Raw::new(0, 1).key("k", ARRAY).u32(U64).u64(1 << 60),
        Raw::new(0, 1).key("k", ARRAY).u32(ARRAY).u64(1 << 60),
        Raw::new(1, 0).tensor("t", &[1 << 60], F32, 0),
    ];
    for raw in claims {
        let (read, memory) = peak(|| Gguf::read(Cursor::new(&raw.0)));
        assert!(read.is_err() && memory < 16 << 10, "{memory}: {read:?}");
    }
}

/// A file with something of everything.
fn whole() -> Vec<u8> {
    let builder = Builder::new()
        .set("bool", true)
        .and_then(|b| b.set("text", "some text"))
        .and_then(|b| b.set("words", vec!["a".to_owned(), String::new()]))
        .and_then(|b| b.set("numbers", vec![1.5_f64, -2.0]))
        .and_then(|b| b.alignment(64))
        .and_then(|b| b.tensor("first", ggml_rs::DType::F32, [3, 2]))
        .and_then(|b| b.tensor("second", ggml_rs::DType::Q8_0, [32]));
    let mut writer = builder.unwrap().begin(Vec::new()).unwrap();
    writer.write("first", &[1; 24]).unwrap();
    writer.write("second", &[2; 34]).unwrap();
    writer.finish().unwrap()
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let bytes = whole();
    let values_end = bytes.len() - (64 - 34);
    for len in 0..bytes.len() {
        match read(&bytes[..len]) {
            // Padding behind the last tensor may be missing.
            Ok(_) => assert!(len >= values_end, "a file of {len} bytes was read"),
            Err(error) => {
                assert!(len < values_end, "{len}: {error}");
                let cut = matches!(
                    error.fault,
                    Fault::Ends { .. } | Fault::TooMany { .. } | Fault::Beyond { .. }
                );
                assert!(cut, "{len}: {error}");
            }
        }
    }
}

#[test]
fn no_byte_makes_the_reader_panic_or_take_memory() {
    let bytes = whole();
    let mut refused = 0;
    for at in 0..bytes.len() {
        for change in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            // The limit on memory is checked inside.
            match read(&bytes) {
                Ok(mut file) => {
                    let names: Vec<_> =
                        file.tensors().iter().map(|t| t.name().to_owned()).collect();
                    for name in names {
                        file.read_bytes(&name).unwrap();
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 500, "{refused}");
}
