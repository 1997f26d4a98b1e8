//! The lines of set `blas`, and its rows for programs.

use super::{Arm, Comparison};
use crate::case::Case;
use crate::cases::OutProd;
use crate::modes::perf::measure::Measured;
use crate::modes::perf::report::{Extra, fill};
use crate::modes::perf::rounds::Timing;
use crate::report::{DeviceInfo, Row};

/// What stands above the lines.
pub fn head() -> Vec<String> {
    vec![
        "  GFLOP/s by the median of the rounds, and how far they lie apart. The arms take turns in every round.".to_owned(),
        "  ratio: ours to BLAS. upstream: ggml's own kernel, on the same device as ours.".to_owned(),
        "  An OpenBLAS that does not know this CPU picks slower kernels: OPENBLAS_CORETYPE=SkylakeX asks for those of AVX-512.".to_owned(),
        format!(
            "  {:>6} {:>6} {:>6} {:>7} {:>7} {:>15} {:>15} {:>15} {:>6}",
            "m", "n", "k", "trans_b", "threads", "ours", "blas", "upstream", "ratio"
        ),
    ]
}

/// A case with so many threads.
pub fn line(case: &OutProd, comparison: &Comparison) -> String {
    let [ours, blas, upstream] = Arm::ALL.map(|arm| speed(case, comparison.of(arm)));
    format!(
        "  {:>6} {:>6} {:>6} {:>7} {:>7} {ours:>15} {blas:>15} {upstream:>15} {:>6.2}",
        case.m,
        case.n,
        case.k,
        u8::from(case.trans_b),
        comparison.threads,
        comparison.ratio(Arm::Ours)
    )
}

fn speed(case: &OutProd, timing: &Timing) -> String {
    let gflops = case.flops().unwrap_or(f64::NAN) / timing.series.median() / 1e3;
    format!("{gflops:.1} ({:.0} %)", 100.0 * timing.series.spread())
}

/// An arm's row. What upstream's fields have no place for stands behind the parameters.
pub fn row(case: &OutProd, comparison: &Comparison, arm: Arm, info: &DeviceInfo) -> (Row, Extra) {
    let mut row = Row::of_mode("perf", case, info);
    row.op_params.push_str(&format!(
        ",arm={},threads={},ratio={:.4}",
        arm.name(),
        comparison.threads,
        comparison.ratio(arm)
    ));
    (row.supported, row.passed) = (true, true);
    let mut extra = Extra::of_comparison(arm.name(), comparison.threads, comparison.ratio(arm));
    let measured = Measured::Time(comparison.of(arm).clone());
    fill(&mut row, &mut extra, &measured, case.flops(), 0);
    (row, extra)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ggml_rs::DType::F32;

    use super::*;
    use crate::report::samples;

    fn comparison() -> Comparison {
        let timing = |us: u64| {
            let mut timing = Timing {
                runs: 2,
                total: Duration::from_micros(2 * us),
                ..Timing::default()
            };
            timing.series.push(us as f64);
            timing
        };
        Comparison {
            threads: 2,
            timings: [timing(100), timing(80), timing(400)],
        }
    }

    #[test]
    fn columns_are_aligned() {
        let case = OutProd::new(F32, F32, [100, 100, 100]);
        let line = line(&case, &comparison());
        assert_eq!(head().last().map(String::len), Some(line.len()));
        assert!(
            line.contains(" 20.0 (0 %)") && line.ends_with(" 0.80"),
            "{line}"
        );
    }

    #[test]
    fn a_row_names_arm_threads_and_ratio() {
        let case = OutProd::new(F32, F32, [100, 100, 100]);
        let (row, extra) = row(&case, &comparison(), Arm::Upstream, &samples::device());
        assert!(
            row.op_params
                .ends_with(",arm=upstream,threads=2,ratio=0.2000")
        );
        assert_eq!((row.time_us, row.n_runs), (400.0, 2));
        let json = serde_json::to_value(extra).expect("a value");
        assert_eq!(json["ratio"], 0.2);
    }
}
