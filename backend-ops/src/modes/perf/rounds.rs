//! The order of measurements.

use std::time::Duration;

use super::stats::Series;

/// Upstream's: what is measured at least.
const AT_LEAST: Duration = Duration::from_secs(1);
/// A spread over fewer repeats says nothing.
const REPEATS: usize = 5;

/// What the rounds of one arm came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// Runs, the warm-up apart.
    pub runs: usize,
    /// What they took in all.
    pub total: Duration,
    /// Per run, of every round.
    pub series: Series,
}

impl Timing {
    /// Upstream's figure: the mean, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.total.as_secs_f64() * 1e6 / self.runs as f64
    }

    fn add(&mut self, runs: usize, time: Duration) {
        self.runs += runs;
        self.total += time;
        self.series.push(time.as_secs_f64() * 1e6 / runs as f64);
    }

    fn is_enough(&self) -> bool {
        self.total >= AT_LEAST && self.series.len() >= REPEATS
    }
}

/// Measures arms against each other: each runs once to warm up, then they take turns, so that a clock that slows down or a
/// device that warms up meets all of them alike. A round is `runs` runs of one arm, in one submission.
///
/// # Errors
/// The first error of `measure`, which runs an arm so many times and says how long it took.
pub fn alternate<A, E>(
    arms: &mut [(A, usize)],
    mut measure: impl FnMut(&mut A, usize) -> Result<Duration, E>,
) -> Result<Vec<Timing>, E> {
    for (arm, _) in arms.iter_mut() {
        measure(arm, 1)?;
    }
    let mut timings = vec![Timing::default(); arms.len()];
    while !timings.iter().all(Timing::is_enough) {
        for ((arm, runs), timing) in arms.iter_mut().zip(&mut timings) {
            timing.add(*runs, measure(arm, *runs)?);
        }
    }
    Ok(timings)
}

/// Runs in one submission: upstream's targets of work, and its bound on a graph's nodes.
#[must_use]
pub fn runs_in_a_round(flops: Option<f64>, bytes: usize, is_cpu: bool) -> usize {
    const LARGEST: f64 = 8191.0;
    const GIB: f64 = (1 << 30) as f64;
    let (work, target) = match flops {
        Some(flops) => (flops, if is_cpu { 8e9 } else { 100e9 }),
        None => (bytes as f64, if is_cpu { 8.0 * GIB } else { 32.0 * GIB }),
    };
    (target / work.max(1.0)).min(LARGEST) as usize + 1
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn arms_take_turns_after_one_warm_up_each() {
        let mut order = String::new();
        let timings = alternate(&mut [('a', 2), ('b', 3)], |arm, runs| {
            order.push_str(&format!("{arm}{runs} "));
            Ok::<_, Infallible>(Duration::from_millis(250) * runs as u32)
        })
        .unwrap();
        // Five rounds of both, although the second arm had its second after two.
        assert_eq!(order, format!("a1 b1 {}", "a2 b3 ".repeat(5)));
        assert_eq!((timings[0].runs, timings[1].runs), (10, 15));
        assert_eq!(timings[1].mean_us(), 250_000.0);
        assert_eq!(timings[0].series.median(), 250_000.0);
    }

    #[test]
    fn a_second_is_measured_at_least() {
        let timings = alternate(&mut [((), 1)], |(), _| {
            Ok::<_, Infallible>(Duration::from_millis(90))
        })
        .unwrap();
        assert_eq!(timings[0].runs, 12);
        assert!(timings[0].total >= AT_LEAST);
    }

    #[test]
    fn an_error_ends_it() {
        let mut calls = 0;
        let outcome = alternate(&mut [((), 1)], |(), _| {
            calls += 1;
            if calls < 3 {
                Ok(Duration::from_millis(1))
            } else {
                Err("broken")
            }
        });
        assert_eq!(outcome, Err("broken"));
    }

    #[test]
    fn a_round_holds_upstreams_amount_of_work() {
        assert_eq!(runs_in_a_round(Some(1e9), 0, true), 9);
        assert_eq!(runs_in_a_round(Some(1e9), 0, false), 101);
        assert_eq!(runs_in_a_round(None, 1 << 30, true), 9);
        assert_eq!(runs_in_a_round(None, 1 << 30, false), 33);
        assert_eq!(runs_in_a_round(Some(1.0), 0, false), 8192);
        assert_eq!(runs_in_a_round(None, 0, false), 8192);
        assert_eq!(runs_in_a_round(Some(1e13), 0, false), 1);
    }
}
