//! ggml's log through the `log` crate.
#![cfg(feature = "log")]

use std::sync::Mutex;

use ggml_rs::{Device, RegistryOptions};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(format!(
            "{} {} {}",
            record.target(),
            record.level(),
            record.args()
        ));
    }

    fn flush(&self) {}
}

#[test]
fn errors_of_ggml_reach_the_logger() {
    log::set_logger(&Capture).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let mut options = RegistryOptions::default();
    options.backend_lib = Some("no/such/library.so".into());
    // SAFETY: no environment variable is set, and the library does not exist.
    unsafe { options.install() }.unwrap_err();
    Device::cpu().unwrap();
    let lines = LINES.lock().unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("ggml ERROR") && line.contains("no/such/library.so")),
        "{lines:?}"
    );
}
