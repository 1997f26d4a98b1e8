//! A backend library that does not load. In a process of its own: devices are created once.

use ggml_rs::{Device, RegistryOptions};

use crate::common::child::in_a_child;

#[test]
fn a_library_that_is_missing_is_an_error_and_devices_can_still_be_made() {
    in_a_child(
        "backend_lib::a_library_that_is_missing_is_an_error_and_devices_can_still_be_made",
        || {
            let mut options = RegistryOptions::default();
            options.backend_lib = Some("no/such/library.so".into());
            // SAFETY: no environment variable is set, and the library does not exist.
            let error = unsafe { options.install() }.unwrap_err().to_string();
            assert!(error.contains("no/such/library.so"), "{error}");
            assert_eq!(Device::cpu().unwrap().name(), "CPU");
        },
    );
}
