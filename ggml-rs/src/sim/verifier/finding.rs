//! What the verifier finds, and how it is told.

use std::fmt;

use super::ffi;
use super::lines::Lines;

/// The fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Detector {
    /// A read of memory that nobody has written.
    Uninitialised,
    /// An access to memory that belongs to none of the dispatch's tensors and threadgroup memories.
    OutOfBounds,
    /// Two lanes of a simdgroup access the same bytes, one of them to write, and nothing orders them.
    RaceInSimdgroup,
    /// The same of two simdgroups of a threadgroup.
    RaceInThreadgroup,
    /// The same of two threadgroups of a dispatch.
    RaceInGrid,
    /// The same of two dispatches: a memory barrier is missing between them.
    RaceOfDispatches,
    /// Lanes of a threadgroup wait at different barriers.
    DivergentBarrier,
}

impl Detector {
    fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Uninitialised,
            2 => Self::OutOfBounds,
            3 => Self::RaceInSimdgroup,
            4 => Self::RaceInThreadgroup,
            5 => Self::RaceInGrid,
            6 => Self::RaceOfDispatches,
            7 => Self::DivergentBarrier,
            _ => return None,
        })
    }

    /// Whether two parties access memory without an order.
    #[must_use]
    pub fn is_race(self) -> bool {
        matches!(
            self,
            Self::RaceInSimdgroup
                | Self::RaceInThreadgroup
                | Self::RaceInGrid
                | Self::RaceOfDispatches
        )
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uninitialised => "uninitialised",
            Self::OutOfBounds => "out of bounds",
            Self::RaceInSimdgroup => "race in a simdgroup",
            Self::RaceInThreadgroup => "race in a threadgroup",
            Self::RaceInGrid => "race in the grid",
            Self::RaceOfDispatches => "race of dispatches",
            Self::DivergentBarrier => "divergent barrier",
        })
    }
}

/// What a lane does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It changes memory by an atomic function.
    Atomic,
    /// It waits at a barrier.
    Barrier,
}

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The lane of this index in its threadgroup.
    Index(u32),
    /// All lanes of the simdgroup with this first lane, which move a simdgroup matrix.
    Simdgroup(u32),
    /// One of which no more is known.
    Unknown,
}

impl Lane {
    fn from_raw(raw: u32) -> Self {
        const WHOLE_SIMDGROUP: u32 = 0x8000_0000;
        match raw {
            u32::MAX => Self::Unknown,
            _ if raw & WHOLE_SIMDGROUP != 0 => Self::Simdgroup(raw & !WHOLE_SIMDGROUP),
            _ => Self::Index(raw),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(lane) => write!(f, "lane {lane}"),
            Self::Simdgroup(first) => write!(f, "the simdgroup of lane {first}"),
            Self::Unknown => f.write_str("another lane"),
        }
    }
}

/// Where in the code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Position {
    /// A line of a kernel file.
    Line {
        /// The file's name.
        file: String,
        /// Its line.
        line: u32,
    },
    /// An offset in the library or the program, which has no line tables.
    Offset(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Offset(offset) => write!(f, "code offset {offset:#x}"),
        }
    }
}

/// One party of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Site {
    /// Where in the code.
    pub position: Position,
    /// What it does there.
    pub access: Access,
    /// Who does it.
    pub lane: Lane,
    /// The position of its threadgroup in the grid.
    pub threadgroup: [u32; 3],
}

impl Site {
    /// `None` where there is no such party.
    pub(super) fn new(raw: &ffi::Place, lines: &Lines) -> Option<Self> {
        let access = match raw.access {
            1 => Access::Read,
            2 => Access::Write,
            3 => Access::Atomic,
            _ => return None,
        };
        Some(Self {
            position: lines.position(raw.pc),
            access,
            lane: Lane::from_raw(raw.lane),
            threadgroup: raw.threadgroup,
        })
    }

    fn at_barrier(raw: &ffi::Finding, place: &ffi::Place) -> Self {
        Self {
            position: Position::Line {
                file: ffi::text(&raw.file),
                line: raw.line,
            },
            access: Access::Barrier,
            lane: Lane::from_raw(place.lane),
            threadgroup: place.threadgroup,
        }
    }

    fn group(&self) -> String {
        let [x, y, z] = self.threadgroup;
        format!("threadgroup ({x}, {y}, {z})")
    }
}

/// Which memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A tensor.
    Tensor {
        /// Its name in the graph, which may be empty.
        name: String,
        /// The index by which the kernel has it, if it has it at all.
        buffer: Option<u32>,
    },
    /// Threadgroup memory that the host gives the kernel.
    Threadgroup(u32),
    /// An array that the kernel declares in threadgroup memory.
    Array(String),
    /// Memory that is none of the dispatch's.
    Elsewhere,
}

impl Address {
    fn new(raw: &ffi::Finding) -> Self {
        let name = ffi::text(&raw.name);
        match (raw.space, u32::try_from(raw.block)) {
            (1, buffer) => Self::Tensor {
                name,
                buffer: buffer.ok(),
            },
            (2, Ok(index)) => Self::Threadgroup(index),
            (2, Err(_)) => Self::Array(name),
            _ => Self::Elsewhere,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor { name, buffer } => {
                match buffer {
                    Some(buffer) => write!(f, "buffer {buffer}")?,
                    None => f.write_str("a tensor")?,
                }
                match name.as_str() {
                    "" => Ok(()),
                    name => write!(f, " `{name}`"),
                }
            }
            Self::Threadgroup(index) => write!(f, "threadgroup memory {index}"),
            Self::Array(name) => write!(f, "threadgroup array {name}"),
            Self::Elsewhere => f.write_str("memory that is none of the dispatch's"),
        }
    }
}

/// A fault that a kernel has, seen at least once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finding {
    /// What kind of fault.
    pub detector: Detector,
    /// The kernel's host name.
    pub kernel: String,
    /// The other kernel, in a race of dispatches.
    pub other_kernel: Option<String>,
    /// Of a race: the bytes were the same before and after the later write. Kernels let several lanes write one value to
    /// one place.
    pub same_value: bool,
    /// Who does it.
    pub site: Site,
    /// In a race: who was there before. At a divergent barrier: who is elsewhere.
    pub other: Option<Site>,
    /// In which memory.
    pub address: Address,
    /// The first byte, counted from where that memory begins.
    pub offset: i64,
    /// How large that memory is.
    pub size: u64,
    /// How many bytes are accessed.
    pub bytes: u64,
    /// How often it was seen, at the same two places.
    pub count: u64,
}

impl Finding {
    /// `None` for one that a later device knows and we do not.
    pub(super) fn new(raw: &ffi::Finding, lines: &Lines) -> Option<Self> {
        let detector = Detector::from_raw(raw.detector)?;
        let (site, other) = match detector {
            Detector::DivergentBarrier => (
                Site::at_barrier(raw, &raw.at),
                Some(Site::at_barrier(raw, &raw.other)),
            ),
            _ => (Site::new(&raw.at, lines)?, Site::new(&raw.other, lines)),
        };
        Some(Self {
            detector,
            kernel: ffi::text(&raw.kernel),
            other_kernel: Some(ffi::text(&raw.other_kernel)).filter(|name| !name.is_empty()),
            same_value: raw.same_value != 0,
            site,
            other,
            address: Address::new(raw),
            offset: raw.offset,
            size: raw.block_size,
            bytes: raw.bytes,
            count: raw.count,
        })
    }

    fn other_party(&self, f: &mut fmt::Formatter<'_>, other: &Site) -> fmt::Result {
        let did = match other.access {
            Access::Read => "read",
            Access::Write => "wrote",
            Access::Atomic => "changed",
            Access::Barrier => "did not reach",
        };
        write!(f, ", which {}", other.lane)?;
        if other.threadgroup != self.site.threadgroup || self.other_kernel.is_some() {
            write!(f, " of {}", other.group())?;
        }
        if let Some(kernel) = &self.other_kernel {
            write!(f, " of {kernel}")?;
        }
        write!(f, " {did}")?;
        if other.access != Access::Barrier {
            write!(f, " at {}", other.position)?;
        }
        Ok(())
    }
}

/// One line: `race in a simdgroup: kernel_foo, softmax.metal:123: lane 3 of threadgroup (0, 0, 0) writes 4 bytes at byte 128
/// of threadgroup memory 0, which lane 5 read at softmax.metal:120`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            detector,
            kernel,
            site,
            ..
        } = self;
        write!(f, "{detector}")?;
        if self.same_value {
            f.write_str(" of equal values")?;
        }
        write!(
            f,
            ": {kernel}, {}: {} of {}",
            site.position,
            site.lane,
            site.group()
        )?;
        let does = match site.access {
            Access::Read => "reads",
            Access::Write => "writes",
            Access::Atomic => "changes",
            Access::Barrier => "waits at a barrier",
        };
        write!(f, " {does}")?;
        if site.access != Access::Barrier {
            write!(
                f,
                " {} bytes at byte {} of {}",
                self.bytes, self.offset, self.address
            )?;
        }
        if *detector == Detector::OutOfBounds && self.address != Address::Elsewhere {
            write!(f, ", which has {}", self.size)?;
        }
        if let Some(other) = &self.other {
            self.other_party(f, other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(access: Access, line: u32, lane: u32) -> Site {
        Site {
            position: Position::Line {
                file: "softmax.metal".to_owned(),
                line,
            },
            access,
            lane: Lane::Index(lane),
            threadgroup: [0, 1, 0],
        }
    }

    fn race() -> Finding {
        Finding {
            detector: Detector::RaceInSimdgroup,
            kernel: "kernel_foo".to_owned(),
            other_kernel: None,
            same_value: false,
            site: site(Access::Write, 123, 3),
            other: Some(site(Access::Read, 120, 5)),
            address: Address::Threadgroup(0),
            offset: 128,
            size: 256,
            bytes: 4,
            count: 1,
        }
    }

    #[test]
    fn a_race_is_told_in_one_line() {
        assert_eq!(
            race().to_string(),
            "race in a simdgroup: kernel_foo, softmax.metal:123: lane 3 of threadgroup (0, 1, 0) writes 4 bytes at \
             byte 128 of threadgroup memory 0, which lane 5 read at softmax.metal:120"
        );
        let mut finding = race();
        finding.same_value = true;
        finding.detector = Detector::RaceOfDispatches;
        finding.other_kernel = Some("kernel_bar".to_owned());
        finding.other.as_mut().unwrap().lane = Lane::Unknown;
        assert_eq!(
            finding.to_string(),
            "race of dispatches of equal values: kernel_foo, softmax.metal:123: lane 3 of threadgroup (0, 1, 0) \
             writes 4 bytes at byte 128 of threadgroup memory 0, which another lane of threadgroup (0, 1, 0) of \
             kernel_bar read at softmax.metal:120"
        );
    }

    #[test]
    fn a_fault_without_a_second_party_names_the_tensor() {
        let finding = Finding {
            detector: Detector::OutOfBounds,
            other: None,
            address: Address::Tensor {
                name: "kq".to_owned(),
                buffer: Some(2),
            },
            ..race()
        };
        assert!(
            finding
                .to_string()
                .ends_with("writes 4 bytes at byte 128 of buffer 2 `kq`, which has 256"),
            "{finding}"
        );
    }
}
