//! What must hold before any other call into ggml, established once per process.

use once_cell::sync::OnceCell;

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::{guard, logging};

static READY: OnceCell<()> = OnceCell::new();

/// Checks the CPU and installs our callbacks. Cheap after the first call.
///
/// # Errors
/// [`Error::Device`] on a CPU that this build's code does not run on.
pub(crate) fn ready() -> Result<()> {
    READY
        .get_or_try_init(|| {
            check_cpu()?;
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

/// Illegal instructions would end the process, so ask first. The level is the one ggml-sys compiles for.
#[cfg(target_arch = "x86_64")]
fn check_cpu() -> Result<()> {
    let features = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("f16c", std::arch::is_x86_feature_detected!("f16c")),
        ("bmi2", std::arch::is_x86_feature_detected!("bmi2")),
    ];
    let missing: Vec<_> = features
        .iter()
        .filter(|(_, present)| !present)
        .map(|&(name, _)| name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "this CPU lacks {}; ggml is compiled for x86-64-v3: run on a CPU from 2015 or later",
        missing.join(", ")
    );
    Err(Error::device("check the CPU", detail))
}

/// Every other target's baseline is what ggml is compiled for.
#[cfg(not(target_arch = "x86_64"))]
fn check_cpu() -> Result<()> {
    Ok(())
}
