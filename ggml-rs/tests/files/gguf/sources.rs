//! Files that are no files, or not as long as they claim.

use std::io::{self, Read, Seek, SeekFrom};

use ggml_rs::files::gguf::{Gguf, ReadOptions};

use super::memory::peak;
use super::raw::Raw;

/// A source of 64 TB, of which there is the beginning.
struct Sparse {
    begin: Vec<u8>,
    at: u64,
}

impl Read for Sparse {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self
            .begin
            .get(self.at as usize..)
            .filter(|left| !left.is_empty())
        else {
            return Err(io::Error::other("nobody has so many bytes"));
        };
        let bytes = left.len().min(to.len());
        to[..bytes].copy_from_slice(&left[..bytes]);
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => (1_u64 << 46).checked_add_signed(by).unwrap(),
            SeekFrom::Current(by) => self.at.checked_add_signed(by).unwrap(),
        };
        Ok(self.at)
    }
}

/// Leaves it to the file how much memory it takes.
pub const UNLIMITED: ReadOptions = ReadOptions::new()
    .max_value_bytes(usize::MAX)
    .max_metadata_bytes(usize::MAX);

/// A length that the file's own length allows is still no reason to ask for memory.
#[test]
fn memory_follows_what_is_read() {
    const LONG: u64 = 1 << 45;
    let key = |value_type| Raw::new(0, 1).key("k", value_type);
    let claims = [
        key(8).u64(LONG),
        key(9).u32(0).u64(LONG),
        key(9).u32(8).u64(1).u64(LONG),
        key(9).u32(10).u64(LONG / 8),
    ];
    for Raw(begin) in claims {
        let source = Sparse { begin, at: 0 };
        let (read, memory) = peak(|| Gguf::read_with(source, UNLIMITED));
        let error = read.map(drop).unwrap_err().to_string();
        assert!(error.contains("nobody has so many bytes"), "{error}");
        assert!(memory < 1 << 18, "{memory} bytes");
    }
}

/// A pipe would keep the reader waiting until somebody writes.
#[cfg(unix)]
#[test]
fn pipes_and_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in [pipe, folder.path().to_owned()] {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let texts = [
                Gguf::open(&path).map(drop),
                ggml_rs::files::safetensors::SafeTensors::open(&path).map(drop),
            ]
            .map(|opened| opened.unwrap_err().to_string());
            let _ = tell.send(texts);
        });
        let texts = told.recv_timeout(std::time::Duration::from_secs(20));
        for text in texts.expect("an answer at once") {
            assert!(text.ends_with("header: not a regular file"), "{text}");
        }
    }
}

#[test]
fn what_an_error_quotes_stays_on_its_line() {
    let raw = Raw::new(2, 0)
        .tensor("a\n\u{1b}[2J", &[9], 0, 0)
        .tensor("b", &[9], 0, 32)
        .data(256);
    let error = Gguf::read(io::Cursor::new(raw.0)).unwrap_err().to_string();
    assert!(
        error.ends_with(r"overlap those of tensor `a\n\u{1b}[2J`"),
        "{error}"
    );
}
