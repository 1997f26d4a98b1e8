//! The verifier on kernels of ggml's: silent about one that is right, and not when a barrier of it is taken out.
//!
//! One test: the verifier's settings hold for the process.

#![cfg(not(target_os = "macos"))]

use ggml_rs::sim::{Access, Detector, Lockstep, Order, Position, Verifier};
use ggml_rs::{Backend, DType, Device, Graph, Output, Plan, PlanOptions, Result};

const COLUMNS: usize = 300;

/// A norm over rows that several simdgroups share.
fn norm(backend: &mut Backend) -> Result<(Plan, Output)> {
    let (graph, (x, y)) = Graph::build(|g| {
        let (x, input) = g.input("x", DType::F32, [COLUMNS, 2])?;
        Ok((input, g.output("y", x.rms_norm(1e-6)?)?))
    })?;
    let mut plan = Plan::new(graph, backend, PlanOptions::default())?;
    let values: Vec<f32> = (0..2 * COLUMNS).map(|i| i as f32 - 300.5).collect();
    plan.set_f32(&x, &values)?;
    plan.run(backend)?;
    Ok((plan, y))
}

#[test]
fn a_barrier_that_is_taken_out_is_missed() -> Result<()> {
    let device = Device::all()?
        .into_iter()
        .find(|device| device.is_simulated())
        .expect("the feature compiles the simulated device in");
    let verifier = Verifier::of(device).expect("the feature compiles the verifier in");
    assert!(Verifier::of(Device::cpu()?).is_none());
    let mut backend = device.open()?;

    let (plan, y) = norm(&mut backend)?;
    assert_eq!(verifier.take_findings(), []);
    let expected = plan.read_f32(&y)?;
    let (kernel, site) = verifier.last_writer(&plan, &y, 4).unwrap();
    assert!(kernel.starts_with("kernel_rms_norm"), "{kernel}");
    assert_eq!(
        (site.access, site.threadgroup),
        (Access::Write, [0, 0, 0]),
        "{site:?}"
    );
    let last = 4 * (2 * COLUMNS - 1);
    let (_, site) = verifier.last_writer(&plan, &y, last).unwrap();
    assert_eq!(site.threadgroup, [1, 0, 0]);

    for order in [Order::Reversed, Order::Random(7), Order::Ascending] {
        verifier.set_order(order);
        let (plan, y) = norm(&mut backend)?;
        assert_eq!(plan.read_f32(&y)?, expected, "{order:?}");
    }

    let barriers = verifier.barriers_executed();
    assert!(!barriers.is_empty());
    for barrier in &barriers {
        assert!(barrier.file.ends_with("norm.metal"), "{barrier:?}");
        verifier.remove_barrier(&barrier.file, barrier.line);
        norm(&mut backend)?;
        verifier.restore_barriers();
        let findings = verifier.take_findings();
        assert!(!findings.is_empty(), "{barrier:?} was not missed");
        for finding in findings {
            let at = matches!(&finding.site.position, Position::Line { file, .. } if file == "norm.metal");
            assert!(at, "{finding}");
            assert!(
                finding.detector.is_race() || finding.detector == Detector::Uninitialised,
                "{finding}"
            );
        }
    }

    verifier.reset_barriers();
    assert_eq!(verifier.barriers_executed(), []);
    verifier.set_lockstep(Lockstep::Strict);
    let (plan, y) = norm(&mut backend)?;
    assert_eq!(plan.read_f32(&y)?, expected);
    assert_eq!(verifier.barriers_executed().len(), barriers.len());
    Ok(())
}
