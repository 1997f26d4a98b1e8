//! A process that ends while buffers of the device are alive must end cleanly: `mem::forget` is safe code, so no type can
//! prevent it, and "37/37" followed by an abort in a static destructor would be a failure all the same.

use std::process::Command;

use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};

const LEAK: &str = "GGML_RS_TESTS_LEAK";

/// Not a test by itself: the body of the child process below.
#[test]
fn leak_a_plan() {
    if std::env::var_os(LEAK).is_none() {
        return;
    }
    for device in Device::all().expect("devices") {
        let (graph, (x, _y)) = Graph::build(|g| {
            let (tensor, x) = g.input("x", DType::F32, [64, 64])?;
            Ok((x, g.output("y", tensor.out_prod(tensor)?)?))
        })
        .expect("a graph");
        let mut backend = device.open().expect("a backend");
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).expect("a plan");
        plan.set_f32(&x, &[1.0; 64 * 64]).expect("an input");
        plan.run(&mut backend).expect("a result");
        std::mem::forget((plan, backend));
        println!("leaked on {}", device.name());
    }
}

#[test]
fn a_process_ends_cleanly_with_live_buffers() {
    let output = Command::new(std::env::current_exe().expect("the path of this test"))
        .args(["--exact", "leak_a_plan", "--nocapture"])
        .env(LEAK, "1")
        .output()
        .expect("this test starts again");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("leaked on MTL0"), "{stdout}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
}
