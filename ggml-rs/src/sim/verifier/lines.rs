//! From code addresses to lines of kernel files.

use std::path::Path;

use addr2line::Loader;

use super::finding::Position;

/// The line tables of a library or of the program; without any, positions are offsets.
pub(super) struct Lines(Option<Loader>);

impl Lines {
    pub(super) fn of(module: &Path) -> Self {
        Self(Loader::new(module).ok())
    }

    /// Where the access is behind which the code returns to `pc`.
    pub(super) fn position(&self, pc: u64) -> Position {
        let line = self.0.as_ref().and_then(|lines| line(lines, pc));
        line.unwrap_or(Position::Offset(pc))
    }
}

/// The innermost frame in a kernel file: the shim is inlined into kernels, and its lines tell nothing.
fn line(lines: &Loader, pc: u64) -> Option<Position> {
    let mut frames = lines.find_frames(pc.checked_sub(1)?).ok()?;
    let mut innermost = None;
    while let Ok(Some(frame)) = frames.next() {
        let Some(location) = frame.location else {
            continue;
        };
        let (Some(file), Some(line)) = (location.file, location.line) else {
            continue;
        };
        let position = Position::Line {
            file: short(file).to_owned(),
            line,
        };
        if !file.contains("metal-sim/cpp/") {
            return Some(position);
        }
        innermost.get_or_insert(position);
    }
    innermost
}

/// The name of the file: those of ggml's kernels are unique.
fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}
