//! What must hold before any other call into ggml, established once per process.

use once_cell::sync::OnceCell;

use ggml_sys as sys;

use crate::error::Result;
use crate::{guard, logging};

mod cpu;

static READY: OnceCell<()> = OnceCell::new();

/// Checks the CPU and installs our callbacks. Cheap after the first call.
///
/// # Errors
/// [`Error::Device`] on a CPU that this build's code does not run on.
pub(crate) fn ready() -> Result<()> {
    READY
        .get_or_try_init(|| {
            cpu::check()?;
            install_callbacks();
            Ok(())
        })
        .copied()
}

/// ggml's callbacks are process-wide: they are set once, here, and never changed.
fn install_callbacks() {
    // SAFETY: both callbacks are functions of this program, so they live as long as the process, and have
    // the signatures that ggml.h declares. No other call into ggml has been made: READY guards them all.
    unsafe {
        sys::ggml_log_set(Some(logging::on_log), std::ptr::null_mut());
        sys::ggml_set_abort_callback(Some(guard::on_abort));
    }
}
