//! ggml's log: kept out of the program's output, the latest error remembered for our own errors.
//!
//! With the feature `log`, complete lines also go to the `log` crate, under the target `ggml`.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;

use ggml_sys as sys;

thread_local! {
    static LINES: RefCell<Lines> = RefCell::default();
}

/// The last error that ggml logged on this thread since the previous call, for the detail of an error.
pub(crate) fn take_error() -> Option<String> {
    LINES.with_borrow_mut(|lines| lines.error.take())
}

/// ggml's log callback.
pub(crate) unsafe extern "C-unwind" fn on_log(
    level: sys::ggml_log_level,
    text: *const c_char,
    _: *mut c_void,
) {
    // SAFETY: ggml passes a NUL-terminated string that outlives the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A logger may panic, and ggml's frames are not ours to unwind here. A thread that is being torn down
    // has no LINES any more; its lines are dropped.
    let _ = catch_unwind(|| {
        let complete = LINES.try_with(|lines| lines.borrow_mut().push(level, &text));
        for (level, line) in complete.unwrap_or_default() {
            forward(level, &line);
        }
    });
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
