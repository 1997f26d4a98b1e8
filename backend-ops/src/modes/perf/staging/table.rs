//! The table of stagings, and its rows for programs.

use super::super::measure::Measured;
use super::super::parts::Parts;
use super::super::report::{Extra, SIMULATED, describe_parts, describe_series, fill};
use super::ArmResult;
use super::model::CHECK;
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
        "  moved: what kernels load and store there, computed from shapes: product + temporaries".to_owned(),
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
        let [m, n, k] = CHECK;
        lines.extend([
            "  This device is simulated: a CPU that runs a kernel's threads one by one says nothing about a GPU's time, so counters stand in place of times.".to_owned(),
            "  They are computed for whole tiles from small runs, since one run at these sizes takes up to ten minutes here;".to_owned(),
            format!("  a run of m={m} n={n} k={k} came out as computed in every counter before the first line of each type of weights."),
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
    let timed = results.iter().any(|result| result.measured.is_some());
    let mut lines = vec![if timed {
        format!("    {:<12} {COMMON}  time", "arm", COMMON = common_head())
    } else {
        format!(
            "    {:<12} {COMMON} {:>11} {:>18} {:>12} {:>14} {:>13}",
            "arm",
            "dispatches",
            "threadgroups",
            "barriers",
            "matrix FMAs",
            "relaxed FMAs",
            COMMON = common_head()
        )
    }];
    lines.extend(results.iter().map(|result| line(case, result)));
    lines.extend(results.iter().map(|result| {
        format!(
            "      {}: {}",
            result.arm.name.unwrap_or_default(),
            result.product.0
        )
    }));
    lines.extend(parts.map(describe_parts));
    lines
}

fn common_head() -> String {
    format!(
        "{:>12} {:>9} {:>17} {:>10}",
        "tg bytes", "held MiB", "moved MiB", "published"
    )
}

fn mib(bytes: usize) -> String {
    format!("{:.0}", bytes as f64 / (1 << 20) as f64)
}

fn line(case: &OutProd, result: &ArmResult) -> String {
    let name = result.arm.name.unwrap_or_default();
    let work = &result.work;
    let moved = format!("{} + {}", mib(work.moved.product), mib(work.moved.rest));
    let common = format!(
        "    {name:<12} {:>12} {:>9} {moved:>17} {:>10}",
        result.product.1,
        mib(result.held),
        published(case, name)
    );
    if let Some(Measured::Time(timing)) = &result.measured {
        return format!("{common}  {}", describe_series(timing));
    }
    let counters = work.counters.unwrap_or_default();
    format!(
        "{common} {:>11} {:>18} {:>12} {:>14} {:>13}",
        format!("{} + {}", work.product.dispatches, work.rest.dispatches),
        format!("{} + {}", work.product.threadgroups, work.rest.threadgroups),
        counters.threadgroup_barriers,
        counters.simdgroup_fmas,
        counters.relaxed_fmas
    )
}

/// The row of an arm. What upstream's fields have no place for stands behind the parameters.
pub fn row(case: &OutProd, result: &ArmResult, info: &DeviceInfo) -> (Row, Extra) {
    let name = result.arm.name.unwrap_or_default();
    let mut row = Row::of_mode("perf", case, info);
    row.op_params.push_str(&format!(
        ",arm={name},threadgroup_bytes={},held_bytes={},moved_bytes={}",
        result.product.1,
        result.held,
        result.work.moved.product + result.work.moved.rest
    ));
    (row.supported, row.passed) = (true, true);
    row.memory_kb = result.held as u64 / 1024;
    let mut extra = Extra::of_arm(result.arm);
    match (&result.measured, result.work.counters) {
        (Some(measured), _) => fill(&mut row, &mut extra, measured, case.flops(), 0),
        (None, counters) => {
            row.error_message = format!("{SIMULATED}, computed for this size");
            extra.count(counters);
        }
    }
    (row, extra)
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType;

    use super::super::super::Arm;
    use super::super::{arms, cases, model};
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
        let result = |arm: Arm| ArmResult {
            arm,
            product: ("kernel_mul_mm_f32_f32".into(), 6144),
            held: 40 << 20,
            work: model::Work {
                moved: model::Moved {
                    product: 300 << 20,
                    rest: 20 << 20,
                },
                product: Default::default(),
                rest: Default::default(),
                counters: Some(Default::default()),
            },
            measured: None,
        };
        let results: Vec<_> = arms(false).into_iter().map(result).collect();
        let text = lines(case, &results, None);
        assert_eq!(text.len(), 7);
        assert!(text[..4].iter().all(|line| line.len() == text[0].len()));
        assert!(
            text[1].contains("300 + 20") && text[1].contains("3.0-7.3"),
            "{text:?}"
        );
    }

    #[test]
    fn a_simulated_table_says_why_it_has_no_times() {
        let text = preface(true, false).join("\n");
        assert!(text.contains("simulated") && text.contains("counters stand in place of times"));
        assert!(text.contains("computed for whole tiles") && text.contains("not here"));
        assert!(!preface(false, false).join("\n").contains("counters"));
    }
}
