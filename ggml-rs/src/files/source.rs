//! Reading with a position: every error says at which byte, and nothing is asked for that the file cannot hold.

use std::io::{BufReader, Read, Seek, SeekFrom};

use crate::error::{Error, Result};
use crate::files::error::{Fault, FileError, Place};
use crate::memory::reserve;

/// Reads a file's header from its beginning.
pub(crate) struct Cursor<R> {
    source: BufReader<R>,
    at: u64,
    len: u64,
    /// Where the reader is, for errors.
    pub place: Place,
}

impl<R: Read + Seek> Cursor<R> {
    /// # Errors
    /// [`Error::File`] when the source cannot seek.
    pub fn new(mut source: R) -> Result<Self> {
        let fail = |error: std::io::Error| FileError::at(None, Place::Header, error.into());
        if cfg!(target_endian = "big") {
            return Err(FileError::at(None, Place::Header, Fault::BigEndianHost));
        }
        let len = source.seek(SeekFrom::End(0)).map_err(fail)?;
        source.rewind().map_err(fail)?;
        Ok(Self {
            source: BufReader::new(source),
            at: 0,
            len,
            place: Place::Header,
        })
    }

    /// Bytes behind the position.
    pub fn left(&self) -> u64 {
        self.len - self.at
    }

    /// The position.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The file's length.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// An error about what begins at `offset`.
    pub fn fail_at(&self, offset: u64, fault: Fault) -> Error {
        FileError::at(Some(offset), self.place.clone(), fault)
    }

    /// An error about the last `back` bytes.
    pub fn fail_back(&self, back: u64, fault: Fault) -> Error {
        self.fail_at(self.at.saturating_sub(back), fault)
    }

    /// Refuses a count of things that have at least `least` bytes each, unless the rest of the file can hold them. The count
    /// itself stands in the last `back` bytes.
    pub fn check_count(
        &self,
        what: &'static str,
        count: u64,
        least: u64,
        back: u64,
    ) -> Result<usize> {
        let left = self.left();
        let room = left / least;
        match usize::try_from(count) {
            Ok(fitting) if count <= room => Ok(fitting),
            _ => Err(self.fail_back(
                back,
                Fault::TooMany {
                    what,
                    count,
                    room,
                    left,
                },
            )),
        }
    }

    /// Fills `to`.
    pub fn fill(&mut self, to: &mut [u8]) -> Result<()> {
        let (needed, left) = (to.len() as u64, self.left());
        if needed > left {
            return Err(self.fail_at(self.at, Fault::Ends { needed, left }));
        }
        let read = self.source.read_exact(to);
        read.map_err(|error| self.fail_at(self.at, error.into()))?;
        self.at += needed;
        Ok(())
    }

    /// Reads bytes of a number that was checked. Memory follows what is read: the length of a file is a claim too, where nothing is
    /// stored for most of it.
    pub fn take(&mut self, len: usize, what: &str) -> Result<Vec<u8>> {
        const STEP: usize = 1 << 16;
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let begin = bytes.len();
            let more = STEP.min(len - begin);
            reserve(&mut bytes, more, format_args!("{what} of {}", self.place))?;
            bytes.resize(begin + more, 0);
            self.fill(&mut bytes[begin..])?;
        }
        Ok(bytes)
    }

    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A name behind its length, which may be `most`.
    pub fn name(&mut self, most: u64) -> Result<String> {
        let bytes = self.u64()?;
        if bytes > most {
            return Err(self.fail_back(8, Fault::LongName { bytes, most }));
        }
        let len = self.check_count("bytes of text", bytes, 1, 8)?;
        self.text_of(len)
    }

    /// A text of a length that was checked.
    pub fn text_of(&mut self, len: usize) -> Result<String> {
        let bytes = self.take(len, "a text")?;
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            self.fail_back((len - at) as u64, Fault::Utf8 { at })
        })
    }
}

/// Reads `to` at an absolute position.
///
/// # Errors
/// [`Error::File`] about the tensor of this name.
pub(crate) fn read_at<R: Read + Seek>(
    source: &mut R,
    at: u64,
    to: &mut [u8],
    name: &str,
) -> Result<()> {
    let mut read = || {
        source.seek(SeekFrom::Start(at))?;
        source.read_exact(to)
    };
    read().map_err(|error| FileError::at(Some(at), Place::Tensor(name.to_owned()), error.into()))
}
