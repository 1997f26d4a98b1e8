//! The table of stagings, and its rows for programs.

use super::super::measure::Measured;
use super::super::parts::Parts;
use super::super::report::{Extra, describe_parts, describe_series, fill};
use super::super::work::split;
use super::ArmResult;
use crate::case::Case;
use crate::cases::OutProd;
use crate::report::{DeviceInfo, Row};

/// Timings by others, in milliseconds: OUT_PROD in a llama.cpp fork on an Apple M5, Q4_K weights, 1024 columns. From, to.
struct Published {
    m: usize,
    k: usize,
    float: &'static str,
    half: &'static str,
}

const PUBLISHED: [Published; 4] = [
    Published {
        m: 1536,
        k: 1536,
        float: "2.8-2.9",
        half: "3.0-7.3",
    },
    Published {
        m: 5120,
        k: 5120,
        float: "26-27",
        half: "41-59",
    },
    Published {
        m: 5120,
        k: 17408,
        float: "88-94",
        half: "168-197",
    },
    Published {
        m: 17408,
        k: 5120,
        float: "88-90",
        half: "100-171",
    },
];

/// What others measured for an arm; nothing for arms and weights that they did not publish.
fn published(case: &OutProd, arm: &str) -> &'static str {
    if case.type_a != ggml_rs::DType::Q4_K {
        return "-";
    }
    let found = PUBLISHED
        .iter()
        .find(|published| (published.m, published.k) == (case.m, case.k));
    match (found, arm) {
        (Some(published), "simd-float") => published.float,
        (Some(published), "simd-half") => published.half,
        _ => "-",
    }
}

/// What the figures are, above them.
pub fn preface(simulated: bool, tensor_api: bool) -> Vec<String> {
    let mut lines = vec![
        "  held: operands, result and scratch in device memory, the device's own answer at this size".to_owned(),
        "  published: ms on an Apple M5, measured by the authors of a llama.cpp fork, not here and not with this code".to_owned(),
    ];
    if tensor_api {
        lines.push(
            "  the tensor kernel stages a alone, as float or half, and reads b in place".to_owned(),
        );
    } else {
        lines.push(
            "  direct: in one kernel, without temporaries, staged in float; never the default"
                .to_owned(),
        );
    }
    if simulated {
        lines.extend([
            "  This device is simulated: a CPU that runs a kernel's threads one by one says nothing about a GPU's time, so counters of one run stand in place of times,".to_owned(),
            "  where the run takes seconds. Threadgroup bytes are those of a small run of the same kernel.".to_owned(),
        ]);
    }
    lines
}

/// How to have the other arms, below the figures: the tensor API is a setting of the process.
pub fn closing(simulated: bool, tensor_api: bool) -> Vec<String> {
    let (arms, other) = if tensor_api {
        ("simd-half, simd-float and direct", "off")
    } else if simulated {
        ("tensor", "on")
    } else {
        ("tensor, where the GPU has it,", "on")
    };
    vec![format!(
        "\n  arms {arms} run in a process of their own: backend-ops perf --set staging --tensor {other}"
    )]
}

/// The lines of a case.
pub fn lines(case: &OutProd, results: &[ArmResult], parts: Option<&Parts>) -> Vec<String> {
    let common = format!(
        "    {:<12} {:>8} {:>9} {:>10}",
        "arm", "tg bytes", "held MiB", "published"
    );
    let measured = match results.first().map(|result| &result.measured) {
        Some(Ok(Measured::Time(_))) => "  time".to_owned(),
        Some(Ok(Measured::Work(..))) => {
            let [dispatches, threadgroups, barriers, fmas, relaxed] = COUNTED;
            format!("{dispatches:>12} {threadgroups:>13} {barriers:>12} {fmas:>14} {relaxed:>13}")
        }
        Some(Err(_)) | None => String::new(),
    };
    let mut lines = vec![common + &measured];
    lines.extend(results.iter().map(|result| line(case, result)));
    lines.extend(results.iter().map(|result| {
        let name = result.arm.name.unwrap_or_default();
        format!("      {name}: {}", result.product.0)
    }));
    lines.extend(parts.map(describe_parts));
    let reasons = results.iter().map(|result| result.measured.as_ref().err());
    lines.extend(reasons.flatten().take(1).map(|why| format!("    {why}")));
    lines
}

/// The columns of a simulated device. Dispatches are those of the product and the rest.
const COUNTED: [&str; 5] = [
    "dispatches",
    "threadgroups",
    "barriers",
    "matrix FMAs",
    "relaxed FMAs",
];

fn line(case: &OutProd, result: &ArmResult) -> String {
    let name = result.arm.name.unwrap_or_default();
    let common = format!(
        "    {name:<12} {:>8} {:>9} {:>10}",
        result.product.1,
        format!("{:.0}", result.held as f64 / (1 << 20) as f64),
        published(case, name)
    );
    match &result.measured {
        Ok(Measured::Time(timing)) => format!("{common}  {}", describe_series(timing)),
        Ok(Measured::Work(counters, dispatches)) => {
            let dispatched = match split(counters, dispatches) {
                Some(split) => format!("{} + {}", split.products, split.others),
                None => counters.dispatches.to_string(),
            };
            format!(
                "{common}{dispatched:>12} {:>13} {:>12} {:>14} {:>13}",
                counters.threadgroups,
                counters.threadgroup_barriers,
                counters.simdgroup_fmas,
                counters.relaxed_fmas
            )
        }
        Err(_) => common,
    }
}

/// The row of an arm. What upstream's fields have no place for stands behind the parameters.
pub fn row(case: &OutProd, result: &ArmResult, info: &DeviceInfo) -> (Row, Extra) {
    let name = result.arm.name.unwrap_or_default();
    let mut row = Row::of_mode("perf", case, info);
    row.op_params.push_str(&format!(
        ",arm={name},threadgroup_bytes={},held_bytes={}",
        result.product.1, result.held
    ));
    row.supported = true;
    row.passed = result.measured.is_ok();
    row.memory_kb = result.held as u64 / 1024;
    let mut extra = Extra::of_arm(result.arm);
    match &result.measured {
        Ok(measured) => fill(&mut row, &mut extra, measured, case.flops(), 0),
        Err(why) => row.error_message.clone_from(why),
    }
    (row, extra)
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType;
    use ggml_rs::sim::Counters;

    use super::super::super::Arm;
    use super::super::{arms, cases};
    use super::*;

    #[test]
    fn published_figures_stand_beside_the_arms_that_they_are_of() {
        let count = |arm| {
            let cases = cases();
            let found = cases.iter().filter(|case| published(case, arm) != "-");
            found
                .inspect(|case| assert_eq!(case.type_a, DType::Q4_K))
                .count()
        };
        assert_eq!(count("simd-float"), 4);
        assert_eq!(count("simd-half"), 4);
        assert_eq!(count("tensor"), 0);
    }

    #[test]
    fn columns_are_aligned() {
        let case = &cases()[0];
        let result = |arm: Arm, measured| ArmResult {
            arm,
            product: ("kernel_mul_mm_f32_f32".into(), 6144),
            held: 40 << 20,
            measured,
        };
        let table = |measured: Result<Measured, String>| -> Vec<_> {
            let results = arms(false).into_iter();
            let results: Vec<_> = results.map(|arm| result(arm, measured.clone())).collect();
            lines(case, &results, None)
        };
        let text = table(Ok(Measured::Work(Counters::default(), Vec::new())));
        assert_eq!(text.len(), 7);
        assert!(text[..4].iter().all(|line| line.len() == text[0].len()));
        assert!(text[1].contains("3.0-7.3"), "{text:?}");
        let text = table(Err("too much".into()));
        assert_eq!(text.len(), 8);
        assert!(text[..4].iter().all(|line| line.len() == text[0].len()));
        assert_eq!(text[7], "    too much");
    }

    #[test]
    fn a_simulated_table_says_why_it_has_no_times() {
        let text = preface(true, false).join("\n");
        assert!(
            text.contains("simulated")
                && text.contains("counters of one run stand in place of times")
        );
        assert!(text.contains("not here"));
        assert!(!preface(false, false).join("\n").contains("counters"));
    }
}
