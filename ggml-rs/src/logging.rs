//! ggml's log: kept out of the program's output, the latest error remembered for our own errors.
//!
//! With the feature `log`, complete lines also go to the `log` crate, under the target `ggml`.
//!
//! A logger is code of somebody else's: it may panic, run plans, ask for devices. While ggml logs it may hold locks, or be in the
//! middle of something. So calls that ggml logs in [`hold`] its lines, and the logger gets them after ggml has returned.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::mem::{forget, take};
use std::panic::catch_unwind;

use ggml_sys as sys;

use crate::inside;

thread_local! {
    static LINES: RefCell<Lines> = RefCell::default();
    /// How many [`Hold`]s are on this thread's stack.
    static HOLDS: Cell<usize> = const { Cell::new(0) };
}

/// The last error that ggml logged on this thread since the previous call, for the detail of an error.
pub(crate) fn take_error() -> Option<String> {
    // A thread that is being torn down may still drop what uses this crate, and has no LINES any more.
    LINES
        .try_with(|lines| lines.borrow_mut().error.take())
        .ok()
        .flatten()
}

/// Keeps this thread's lines from the logger until the result is dropped.
pub(crate) fn hold() -> Hold {
    HOLDS.set(HOLDS.get() + 1);
    Hold(())
}

/// See [`hold`].
pub(crate) struct Hold(());

impl Drop for Hold {
    fn drop(&mut self) {
        if HOLDS.get() == 1 {
            // What is logged meanwhile waits too, and for this loop.
            forward_held();
        }
        HOLDS.set(HOLDS.get() - 1);
    }
}

/// Gives the logger the lines that were held, before ggml ends the process.
pub(crate) fn forward_at_the_end() {
    let _inside = inside_of_ggml();
    forward_held();
}

/// What ggml has locked is unknown: a logger that is called now must wait for nothing.
fn inside_of_ggml() -> inside::Inside {
    inside::enter(Some(inside::run().unwrap_or_default()))
}

/// Gives the logger the lines that were held.
fn forward_held() {
    loop {
        let held = LINES.try_with(|lines| take(&mut lines.borrow_mut().held));
        match held {
            Ok(held) if !held.is_empty() => forward_all(held),
            _ => return,
        }
    }
}

/// ggml's log callback.
pub(crate) unsafe extern "C-unwind" fn on_log(
    level: sys::ggml_log_level,
    text: *const c_char,
    _: *mut c_void,
) {
    // SAFETY: ggml passes a NUL-terminated string that outlives the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A thread that is being torn down has no LINES any more; its lines are dropped.
    let complete = LINES.try_with(|lines| {
        let mut lines = lines.borrow_mut();
        let complete = lines.push(level, &text);
        if HOLDS.get() > 0 && cfg!(feature = "log") {
            lines.held.extend(complete);
            return Vec::new();
        }
        complete
    });
    // A thread of ggml's own, or a call that holds nothing.
    let _inside = inside_of_ggml();
    forward_all(complete.unwrap_or_default());
}

/// A logger may panic, and neither ggml's frames nor a destructor's are ours to unwind.
fn forward_all(lines: Vec<(sys::ggml_log_level, String)>) {
    for (level, line) in lines {
        if let Err(payload) = catch_unwind(|| forward(level, &line)) {
            // Dropping it could panic again, here where nothing catches it.
            forget(payload);
        }
    }
}

#[cfg(feature = "log")]
fn forward(level: sys::ggml_log_level, line: &str) {
    let level = match level {
        sys::GGML_LOG_LEVEL_ERROR => log::Level::Error,
        sys::GGML_LOG_LEVEL_WARN => log::Level::Warn,
        sys::GGML_LOG_LEVEL_DEBUG => log::Level::Debug,
        _ => log::Level::Info,
    };
    log::log!(target: "ggml", level, "{line}");
}

#[cfg(not(feature = "log"))]
fn forward(_level: sys::ggml_log_level, _line: &str) {}

/// Assembles lines: ggml logs pieces, marked as continuations of what came before.
#[derive(Default)]
struct Lines {
    pending: String,
    level: sys::ggml_log_level,
    error: Option<String>,
    /// Complete lines that the logger has not got yet.
    held: Vec<(sys::ggml_log_level, String)>,
}

impl Lines {
    /// Adds a piece and returns the lines it completes.
    fn push(
        &mut self,
        level: sys::ggml_log_level,
        text: &str,
    ) -> Vec<(sys::ggml_log_level, String)> {
        if level != sys::GGML_LOG_LEVEL_CONT {
            self.level = level;
        }
        self.pending.push_str(text);
        let mut complete = Vec::new();
        while let Some(end) = self.pending.find('\n') {
            let line = self.pending[..end].trim_end().to_owned();
            self.pending.drain(..=end);
            if self.level == sys::GGML_LOG_LEVEL_ERROR {
                self.error = Some(line.clone());
            }
            complete.push((self.level, line));
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_pieces_make_one_line() {
        let mut lines = Lines::default();
        assert!(lines.push(sys::GGML_LOG_LEVEL_ERROR, "failed ").is_empty());
        let complete = lines.push(sys::GGML_LOG_LEVEL_CONT, "to allocate\n");
        assert_eq!(
            complete,
            [(sys::GGML_LOG_LEVEL_ERROR, "failed to allocate".to_owned())]
        );
        assert_eq!(lines.error.as_deref(), Some("failed to allocate"));
    }

    #[test]
    fn only_errors_are_remembered() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(sys::GGML_LOG_LEVEL_INFO, "one\ntwo\n").len(), 2);
        assert_eq!(lines.error, None);
    }
}
