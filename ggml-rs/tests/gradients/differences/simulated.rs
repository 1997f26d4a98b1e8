//! The same gradients on the simulated device, with the CPU for what Metal has no kernel for.

use std::collections::BTreeSet;

use ggml_rs::Device;
use ggml_rs::check::GradientOptions;

use super::cases;

/// The ops of the cases, forward and backward, that run on the CPU: Metal does not have them, or not for every layout and shape
/// of the cases (ADD, SUB, MUL and DIV with transposed operands, GROUP_NORM of several images).
const ON_CPU: [&str; 13] = [
    "ADD",
    "ADD1",
    "CROSS_ENTROPY_LOSS",
    "DIAG_MASK_INF",
    "DIAG_MASK_ZERO",
    "DIV",
    "GET_ROWS_BACK",
    "GROUP_NORM",
    "IM2COL_BACK",
    "MUL",
    "POOL_2D_BACK",
    "REPEAT_BACK",
    "SUB",
];

#[test]
fn gradients_agree_on_the_simulated_device() {
    let device = Device::by_name("MTL0").unwrap();
    let (mut failures, mut on_cpu) = (Vec::new(), BTreeSet::new());
    let mut worst = (0.0, String::new());
    for case in cases() {
        let options = GradientOptions::default()
            .device(device)
            .tolerance(case.tolerance);
        match case.check_with(options) {
            Ok(report) => {
                if case.tolerance <= GradientOptions::default().tolerance
                    && report.device.error > worst.0
                {
                    let what = format!("{} ({}): {}", case.op, case.what, report.device);
                    worst = (report.device.error, what);
                }
                on_cpu.extend(report.on_cpu);
            }
            Err(why) => failures.push(why),
        }
    }
    println!("worst of the cases with the default tolerance: {}", worst.1);
    println!("on the CPU: {on_cpu:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let expected = ON_CPU.map(str::to_owned).into_iter().collect();
    assert_eq!(on_cpu, expected, "other ops than listed ran on the CPU");
}
