//! Lines and rows of measurements.

use serde::Serialize;

use super::Arm;
use super::measure::{Measured, Outcome};
use super::parts::Parts;
use super::rounds::Timing;
use super::work::split;
use crate::case::Case;
use crate::report::{DeviceInfo, Row};
use ggml_rs::sim::Counters;

/// Why no line tells the GPU's own time. Nothing takes its place: a guess would look like a measurement.
pub const GPU_TIME: &str = "n/a: ggml's Metal backend hands out no times of its command buffers, only its Objective-C part could ask for them";
/// Why a simulated device has counters instead of times.
pub const SIMULATED: &str = "simulated: counters of one run, not times";

/// What follows a case's name: the rest of upstream's line, and lines of ours below it.
pub fn lines(case: &dyn Case, info: &DeviceInfo, outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Unsupported(reason) => vec![format!("not supported [{}] {reason}", info.name)],
        Outcome::TooLarge(size) => vec![too_large(size)],
        Outcome::Failed(reason) => vec![format!("{reason} FAIL")],
        Outcome::Measured {
            flops,
            bytes,
            arms,
            parts,
        } => {
            let mut lines = vec![first_line(case, arms, *flops, *bytes)];
            lines.extend(arms.iter().map(|(arm, measured)| detail(*arm, measured)));
            lines.extend(parts.iter().map(describe_parts));
            if is_real_metal(info) {
                lines.push(format!("      GPU time {GPU_TIME}"));
            }
            lines
        }
    }
}

pub(super) fn too_large(size: &str) -> String {
    format!("not run: {size} are too much to simulate")
}

fn is_real_metal(info: &DeviceInfo) -> bool {
    info.tensor_api.is_some() && !info.description.contains("simulated")
}

/// Upstream's line, for the first arm.
fn first_line(
    case: &dyn Case,
    arms: &[(Arm, Measured)],
    flops: Option<f64>,
    bytes: usize,
) -> String {
    let Some((_, Measured::Time(timing))) = arms.first() else {
        return SIMULATED.to_owned();
    };
    // "  " and ": " stand around the name.
    let printed = case.name().len() + 4;
    let pad = padding(printed);
    let us = timing.mean_us();
    let rate = match flops {
        Some(flops) => format!("{}/run - {}S", flop(flops), flop(flops / us * 1e6)),
        None => format!("{:>8} kB/run - {:7.2} GB/s", bytes / 1024, gib_s(bytes, us)),
    };
    format!(
        "{:pad$}    {:>8} runs - {us:8.2} us/run - {rate}",
        "", timing.runs
    )
}

/// Upstream's alignment: to a multiple of 8, at least 5 away.
fn padding(printed: usize) -> usize {
    let pad = printed.next_multiple_of(8) - printed;
    if pad < 5 { pad + 8 } else { pad }
}

fn flop(flop: f64) -> String {
    let (scale, unit) = match flop {
        1e12.. => (1e12, "TFLOP"),
        1e9.. => (1e9, "GFLOP"),
        1e6.. => (1e6, "MFLOP"),
        _ => (1e3, "kFLOP"),
    };
    format!("{:6.2} {unit}", flop / scale)
}

/// Upstream's GB are of 2^30 bytes.
fn gib_s(bytes: usize, us: f64) -> f64 {
    bytes as f64 / (us / 1e6) / (1 << 30) as f64
}

fn detail(arm: Arm, measured: &Measured) -> String {
    let name = arm
        .name
        .map_or_else(String::new, |name| format!("{name}: "));
    match measured {
        Measured::Time(timing) => format!("      {name}{}", describe_series(timing)),
        Measured::Work(counters, dispatches) => {
            let apart = split(counters, dispatches).map_or_else(String::new, |split| {
                let threadgroups = split.threadgroups.map_or_else(
                    || "threadgroups not told apart".to_owned(),
                    |[product, rest]| format!("threadgroups {product} and {rest}"),
                );
                format!(
                    "; {} with {} threadgroup bytes dispatched {} times, temporaries {} times, {threadgroups}",
                    split.pipeline, split.threadgroup_bytes, split.products, split.others
                )
            });
            format!("      {name}{}{apart}", describe_counters(counters))
        }
    }
}

/// Median and spread.
pub(super) fn describe_series(timing: &Timing) -> String {
    let [min, max] = timing.series.range();
    format!(
        "median {:.2} us/run, {min:.2} to {max:.2} ({:.1} % of it) in {} rounds",
        timing.series.median(),
        100.0 * timing.series.spread(),
        timing.series.len()
    )
}

fn describe_counters(counters: &Counters) -> String {
    format!(
        "dispatches {}, threadgroups {}, barriers {}, matrix FMAs {}, relaxed FMAs {}",
        counters.dispatches,
        counters.threadgroups,
        counters.threadgroup_barriers,
        counters.simdgroup_fmas,
        counters.relaxed_fmas
    )
}

pub(super) fn describe_parts(parts: &Parts) -> String {
    let each: Vec<_> = parts
        .0
        .iter()
        .map(|part| format!("{} {:.2} us", part.name, part.timing.series.median()))
        .collect();
    format!(
        "      timed alone: temporaries {:.2} us; {}",
        parts.temporaries_us(),
        each.join(", ")
    )
}

/// What upstream's row has no place for: JSON only.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Extra {
    arm: Option<&'static str>,
    median_us: Option<f64>,
    min_us: Option<f64>,
    max_us: Option<f64>,
    rounds: usize,
    gpu_time: Option<&'static str>,
    temporaries_us: Option<f64>,
    counters: Option<Work>,
    threads: Option<usize>,
    ratio: Option<f64>,
}

impl Extra {
    pub(super) fn of_comparison(arm: &'static str, threads: usize, ratio: f64) -> Self {
        Self {
            arm: Some(arm),
            threads: Some(threads),
            ratio: Some(ratio),
            ..Self::default()
        }
    }

    pub(super) fn of_arm(arm: Arm) -> Self {
        Self {
            arm: arm.name,
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Work {
    dispatches: u64,
    threadgroups: u64,
    threadgroup_barriers: u64,
    simdgroup_fmas: u64,
    relaxed_fmas: u64,
    threadgroup_bytes: u64,
}

impl From<&Counters> for Work {
    fn from(counters: &Counters) -> Self {
        Self {
            dispatches: counters.dispatches,
            threadgroups: counters.threadgroups,
            threadgroup_barriers: counters.threadgroup_barriers,
            simdgroup_fmas: counters.simdgroup_fmas,
            relaxed_fmas: counters.relaxed_fmas,
            threadgroup_bytes: counters.threadgroup_bytes,
        }
    }
}

/// The rows of a case: one, or one for each arm.
pub fn rows(case: &dyn Case, info: &DeviceInfo, outcome: &Outcome) -> Vec<(Row, Extra)> {
    let row = Row::of_mode("perf", case, info);
    let refused = |supported, message: String| {
        let row = Row {
            supported,
            error_message: message,
            ..row.clone()
        };
        vec![(row, Extra::default())]
    };
    match outcome {
        Outcome::Unsupported(reason) => refused(false, format!("not supported: {reason}")),
        Outcome::TooLarge(size) => refused(true, too_large(size)),
        Outcome::Failed(reason) => refused(true, reason.clone()),
        Outcome::Measured {
            flops,
            bytes,
            arms,
            parts,
        } => arms
            .iter()
            .map(|(arm, measured)| {
                let mut row = row.clone();
                (row.supported, row.passed) = (true, true);
                if let Some(name) = arm.name {
                    row.op_params.push_str(&format!(",arm={name}"));
                }
                row.memory_kb = *bytes as u64 / 1024;
                let mut extra = Extra {
                    arm: arm.name,
                    gpu_time: is_real_metal(info).then_some(GPU_TIME),
                    temporaries_us: parts.as_ref().map(Parts::temporaries_us),
                    ..Extra::default()
                };
                fill(&mut row, &mut extra, measured, *flops, *bytes);
                (row, extra)
            })
            .collect(),
    }
}

pub(super) fn fill(
    row: &mut Row,
    extra: &mut Extra,
    measured: &Measured,
    flops: Option<f64>,
    bytes: usize,
) {
    match measured {
        Measured::Time(timing) => {
            let us = timing.mean_us();
            row.time_us = us;
            row.n_runs = timing.runs as u64;
            match flops {
                Some(flops) => row.flops = flops / us * 1e6,
                None => row.bandwidth_gb_s = gib_s(bytes, us),
            }
            let [min, max] = timing.series.range();
            extra.median_us = Some(timing.series.median());
            (extra.min_us, extra.max_us) = (Some(min), Some(max));
            extra.rounds = timing.series.len();
        }
        Measured::Work(counters, _) => {
            row.n_runs = 1;
            row.error_message = SIMULATED.to_owned();
            extra.counters = Some(counters.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ggml_rs::DType::F32;

    use super::*;
    use crate::case::Choices;
    use crate::cases::{Binary, OutProd};
    use crate::report::samples;

    fn timed(runs: usize, us: u64) -> Measured {
        let mut timing = Timing {
            runs,
            total: Duration::from_micros(us * runs as u64),
            ..Timing::default()
        };
        timing.series.push(us as f64);
        Measured::Time(timing)
    }

    fn measured(arms: &[Option<&'static str>], flops: Option<f64>, what: Measured) -> Outcome {
        let arm = |&name| {
            let choices = Choices::default();
            (Arm { name, choices }, what.clone())
        };
        Outcome::Measured {
            flops,
            bytes: 1 << 20,
            arms: arms.iter().map(arm).collect(),
            parts: None,
        }
    }

    fn add() -> Binary {
        Binary::add(F32, [1, 1, 1, 1], [1, 1, 1, 1])
    }

    #[test]
    fn the_first_line_is_upstreams() {
        let outcome = measured(&[None], None, timed(100, 50));
        let line = &lines(&add(), &samples::device(), &outcome)[0];
        // The name ends in column 69: padded to 72 would leave 3, so 80.
        let printed = add().name().len() + 4;
        assert_eq!((printed + line.find(|c| c != ' ').expect("text")) % 8, 1);
        assert!(
            line.ends_with("     100 runs -    50.00 us/run -     1024 kB/run -   19.53 GB/s"),
            "{line}"
        );
    }

    #[test]
    fn flops_are_told_with_their_unit() {
        let case = OutProd::new(F32, F32, [256, 64, 64]);
        let outcome = measured(&[Some("float"), Some("half")], case.flops(), timed(10, 100));
        let text = lines(&case, &samples::device(), &outcome);
        assert!(
            text[0].ends_with("100.00 us/run -   2.10 MFLOP/run -  20.97 GFLOPS"),
            "{text:?}"
        );
        assert!(text[1].starts_with("      float: median 100.00") && text[2].contains("half: "));
        assert_eq!(flop(1.5e12), "  1.50 TFLOP");
        assert_eq!(flop(20.0), "  0.02 kFLOP");
    }

    #[test]
    fn a_gap_keeps_names_and_figures_apart() {
        assert_eq!(
            [padding(8), padding(9), padding(11), padding(12)],
            [8, 7, 5, 12]
        );
    }

    #[test]
    fn arms_have_rows_of_their_own() {
        let case = OutProd::new(F32, F32, [256, 64, 64]);
        let outcome = measured(&[Some("float"), Some("half")], case.flops(), timed(10, 100));
        let rows = rows(&case, &samples::device(), &outcome);
        assert_eq!(rows.len(), 2);
        let (row, extra) = &rows[1];
        assert!(row.op_params.ends_with("trans_b=0,arm=half"));
        assert_eq!(
            (row.test_mode, row.n_runs, row.time_us),
            ("perf", 10, 100.0)
        );
        assert!((row.flops - 20.97152e9).abs() < 1e3 && row.bandwidth_gb_s == 0.0);
        assert_eq!((extra.median_us, extra.rounds), (Some(100.0), 1));
        assert!(extra.gpu_time.is_none(), "the sample is simulated");
    }

    #[test]
    fn a_simulated_device_has_no_times() {
        let work = Measured::Work(Counters::default(), Vec::new());
        let outcome = measured(&[None], None, work);
        assert_eq!(lines(&add(), &samples::device(), &outcome)[0], SIMULATED);
        let (row, extra) = &rows(&add(), &samples::device(), &outcome)[0];
        assert_eq!((row.time_us, &*row.error_message), (0.0, SIMULATED));
        assert!(extra.counters.is_some() && extra.median_us.is_none());
    }

    #[test]
    fn a_real_metal_device_says_that_it_does_not_tell_the_gpus_time() {
        let mac = DeviceInfo {
            description: "Apple M5".into(),
            ..samples::device()
        };
        let outcome = measured(&[None], None, timed(1, 1));
        let text = lines(&add(), &mac, &outcome).join("\n");
        assert!(text.contains("GPU time n/a: "), "{text}");
        assert_eq!(rows(&add(), &mac, &outcome)[0].1.gpu_time, Some(GPU_TIME));
    }
}
