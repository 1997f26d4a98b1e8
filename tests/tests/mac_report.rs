//! `cargo xtask mac-report` against the simulated device, on four cases: those that tell the stagings apart.
#![cfg(not(target_os = "macos"))]

use std::path::PathBuf;

use xtask::mac_report::{Ending, Options, collect, render};

fn options() -> Options {
    Options {
        simulated: true,
        backend_ops: Some(PathBuf::from(env!("CARGO_BIN_EXE_backend-ops-under-test"))),
        params: Some("b_range=150000".to_owned()),
        gate_only: true,
    }
}

#[test]
fn the_simulated_device_is_reported_run_by_run() {
    let report = collect(&options()).unwrap();
    let counts: Vec<_> = report
        .tested
        .iter()
        .map(|run| {
            (
                run.ending.clone(),
                run.ran.passed,
                run.ran.failed.len(),
                run.tensor_api.clone(),
            )
        })
        .collect();
    let run = |code, passed, failed, tensor: &str| {
        (Ending::Code(code), passed, failed, tensor.to_owned())
    };
    assert_eq!(
        counts,
        [
            run(0, 4, 0, "off"),
            run(1, 0, 4, "off"),
            run(0, 4, 0, "on"),
            run(0, 4, 0, "on"),
            run(0, 4, 0, "off")
        ]
    );
    assert!(report.is_clean());

    let text = render(&report);
    for part in [
        "says nothing about Apple hardware",
        "Partial: only cases",
        "b_range=150000",
        "NaN",
        "simulated",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(
        report
            .facts
            .iter()
            .any(|(name, value)| name == "build hash" && value.len() == 64)
    );
}

#[test]
fn what_cannot_run_is_reported_and_does_not_stop_the_rest() {
    let mut options = options();
    options.backend_ops = Some(PathBuf::from("/no/such/backend-ops"));
    let report = collect(&options).unwrap();
    assert_eq!(report.tested.len(), 5);
    assert!(
        report
            .tested
            .iter()
            .all(|run| matches!(run.ending, Ending::NotRun(_)))
    );
    assert!(!report.is_clean());
    assert_eq!(render(&report).matches("NOT RUN").count(), 5);

    options.backend_ops = Some(PathBuf::from(env!("CARGO_BIN_EXE_backend-ops-under-test")));
    options.params = Some("no case has this".to_owned());
    let report = collect(&options).unwrap();
    assert!(
        report
            .tested
            .iter()
            .all(|run| run.ending == Ending::Code(2) && !run.complaint.is_empty())
    );
    assert!(!report.is_clean());
}
