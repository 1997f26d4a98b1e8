//! ggml's log through the `log` crate, and loggers that do what they like. Each test is a process of its own, because a process
//! has one logger and makes its devices once.
#![cfg(feature = "log")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ggml_rs::DType::F32;
use ggml_rs::{Device, Graph, Plan, PlanOptions, RegistryOptions};

use crate::common::child::in_a_child;

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
    in_a_child("log::errors_of_ggml_reach_the_logger", || {
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
    });
}

/// A logger that acts on the first lines of a kind alone, since what it does may itself make ggml log.
struct Acting {
    of_interest: &'static str,
    act: fn(),
    lines: AtomicUsize,
}

const FIRST_LINES: usize = 3;

impl log::Log for Acting {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if line.contains(self.of_interest) {
            LINES.lock().unwrap().push(line);
            if self.lines.fetch_add(1, Ordering::Relaxed) < FIRST_LINES {
                (self.act)();
            }
        }
    }

    fn flush(&self) {}
}

fn act_on(of_interest: &'static str, act: fn()) {
    let logger = Box::leak(Box::new(Acting {
        of_interest,
        act,
        lines: AtomicUsize::new(0),
    }));
    log::set_logger(logger).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
}

/// A backend library that does not exist makes ggml log while devices are created, on every machine.
fn fail_to_install() {
    let mut options = RegistryOptions::default();
    options.backend_lib = Some("no/such/library.so".into());
    // SAFETY: no environment variable is set, and the library does not exist.
    unsafe { options.install() }.unwrap_err();
}

fn twice_three(device: Device) -> Vec<f32> {
    let (graph, (x, y)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [4])?;
        Ok((x_in, g.output("y", x.scale(2.0)?)?))
    })
    .unwrap();
    let mut backend = device.open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&x, &[3.0; 4]).unwrap();
    plan.run(&mut backend).unwrap();
    plan.read_f32(&y).unwrap()
}

/// It waited for the devices, whose creation waited for the logger.
#[test]
fn a_logger_may_ask_for_devices_while_they_are_created() {
    in_a_child(
        "log::a_logger_may_ask_for_devices_while_they_are_created",
        || {
            act_on("", || {
                assert_eq!(twice_three(Device::cpu().unwrap()), [6.0; 4]);
            });
            fail_to_install();
            Device::all().unwrap();
            assert!(!LINES.lock().unwrap().is_empty());
        },
    );
}

/// A payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload was dropped");
    }
}

/// The panic unwound through the frames of whoever logged.
#[test]
fn a_logger_may_panic_with_anything() {
    in_a_child("log::a_logger_may_panic_with_anything", || {
        act_on("", || std::panic::panic_any(Bomb));
        fail_to_install();
        assert_eq!(twice_three(Device::cpu().unwrap()), [6.0; 4]);
        assert!(!LINES.lock().unwrap().is_empty());
    });
}

/// The simulated device logs that it has no such kernel under the lock of its library.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn a_logger_may_use_the_device_that_logs() {
    use ggml_rs::Staging;

    let without = [("METAL_SIM_WITHOUT", "kernel_mul_mm_f32_f32_fp32")];
    crate::common::child::in_a_child_with(
        "log::a_logger_may_use_the_device_that_logs",
        &without,
        || {
            act_on("told not to create", || {
                let device = Device::by_name("MTL0").unwrap();
                assert_eq!(twice_three(device), [6.0; 4]);
                assert_eq!(product(device), 256.0);
            });
            let device = Device::by_name("MTL0").unwrap();
            assert_eq!(product(device), 256.0);
            assert!(!LINES.lock().unwrap().is_empty());
        },
    );

    /// An element of a product of ones that wants the kernel.
    fn product(device: Device) -> f32 {
        let (graph, (a, b, y)) = Graph::build(|g| {
            let (a, a_in) = g.input("a", F32, [256, 40])?;
            let (b, b_in) = g.input("b", F32, [256, 64])?;
            let y = a.mul_mat(b)?.set_staging(Staging::Float)?;
            Ok((a_in, b_in, g.output("y", y)?))
        })
        .unwrap();
        let mut backend = device.open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&a, &[1.0; 256 * 40]).unwrap();
        plan.set_f32(&b, &[1.0; 256 * 64]).unwrap();
        plan.run(&mut backend).unwrap();
        plan.read_f32(&y).unwrap()[7]
    }
}
