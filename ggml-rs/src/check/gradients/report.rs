//! What a gradient check found.

use std::collections::BTreeSet;
use std::fmt;

/// Where a gradient differs most from the differences, measured against the tolerance.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// The input whose gradient it is.
    pub input: String,
    /// The element in ne order.
    pub index: usize,
    /// What the central differences give; the formula's value for an element of which none were taken.
    pub expected: f64,
    /// The gradient.
    pub got: f64,
    /// Their distance, relative to the larger of `expected`, the root mean square of the input's gradient, and the floor.
    pub error: f64,
    /// The largest error that passes.
    pub tolerance: f64,
}

impl Deviation {
    /// Whether the error is tolerated. NaN never is.
    pub fn passes(&self) -> bool {
        self.error <= self.tolerance
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}`[{}]: {:e} instead of {:e}, error {:.1e} of {:.1e} allowed",
            self.input, self.index, self.got, self.expected, self.error, self.tolerance
        )
    }
}

/// The outcome of [`gradients`](super::gradients).
#[derive(Debug, Clone, PartialEq)]
pub struct GradientReport {
    /// The seed of all data.
    pub seed: u64,
    /// How many elements' gradients were compared with differences.
    pub elements: usize,
    /// How many elements the trained inputs have.
    pub of: usize,
    /// How many elements were left out because the loss has a kink there.
    pub kinks: usize,
    /// The ops of the graph without its backward, as ggml names them.
    pub ops: BTreeSet<String>,
    /// A hash of the bits of what the device computed, in every placement: equal where two runs agree bit for bit.
    pub hash: u64,
    /// The ops that the CPU computed for a device that does not run them. Empty where the CPU is the device.
    pub on_cpu: BTreeSet<String>,
    /// The worst element of the formulas: the graph's own backward nodes, evaluated in double precision. The tolerance covers
    /// constants that ggml keeps in f32.
    pub formula: Deviation,
    /// The worst element of what the device computed, over all placements. The tolerance covers f32 arithmetic.
    pub device: Deviation,
}

impl GradientReport {
    /// Whether formulas and device both agree with the differences.
    pub fn passes(&self) -> bool {
        self.formula.passes() && self.device.passes()
    }
}

impl fmt::Display for GradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, {} elements of {}, {} at kinks left out\n  formula in f64: {}\n  device: {}",
            self.seed, self.elements, self.of, self.kinks, self.formula, self.device
        )
    }
}

/// What an element is held to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub tolerance: f64,
    /// What an error is relative to at the least.
    pub floor: f64,
}

/// The worst element of one input's gradient, but for those that are skipped.
pub(super) fn worst(
    input: &str,
    expected: &[f64],
    got: &[f64],
    Limits { tolerance, floor }: Limits,
    skipped: impl Fn(usize) -> bool,
) -> Deviation {
    let elements = (0..expected.len()).filter(|&element| !skipped(element));
    let squares = elements.clone().map(|element| expected[element].powi(2));
    let typical = (squares.sum::<f64>() / elements.clone().count().max(1) as f64).sqrt();
    let deviation = |index: usize, expected: f64, got: f64| {
        let distance = (expected - got).abs();
        // Both exactly zero is no error, whatever it would be relative to.
        let error = match distance {
            0.0 => 0.0,
            distance => distance / expected.abs().max(typical).max(floor),
        };
        Deviation {
            input: input.to_owned(),
            index,
            expected,
            got,
            error: if error.is_nan() { f64::INFINITY } else { error },
            tolerance,
        }
    };
    let found = elements.map(|index| deviation(index, expected[index], got[index]));
    // Where all are skipped, nothing deviates.
    found
        .reduce(larger)
        .unwrap_or_else(|| deviation(0, 0.0, 0.0))
}

/// The one with the larger error.
pub(super) fn larger(a: Deviation, b: Deviation) -> Deviation {
    if b.error > a.error { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(tolerance: f64) -> Limits {
        Limits {
            tolerance,
            floor: 0.0,
        }
    }

    #[test]
    fn errors_are_relative_to_what_is_typical() {
        let found = worst(
            "x",
            &[3.0, 0.0, -4.0, 0.0],
            &[3.0, 0.01, -4.0, 0.0],
            limits(1e-3),
            |_| false,
        );
        assert_eq!((found.index, found.error), (1, 0.01 / 2.5));
        assert!(!found.passes());
        assert!(worst("x", &[0.0], &[0.0], limits(0.0), |_| false).passes());
        let floor = Limits {
            floor: 10.0,
            ..limits(1e-3)
        };
        assert!(worst("x", &[3.0, 0.0], &[3.0, 0.01], floor, |_| false).passes());
    }

    #[test]
    fn what_is_skipped_counts_in_no_way() {
        let found = worst("x", &[1e9, 1.0], &[0.0, 1.5], limits(1e-3), |element| {
            element == 0
        });
        assert_eq!((found.index, found.error), (1, 0.5));
        assert!(worst("x", &[1.0], &[2.0], limits(0.0), |_| true).passes());
    }

    #[test]
    fn nan_is_an_error() {
        for (expected, got) in [(1.0, f64::NAN), (f64::NAN, 1.0), (0.0, 1e-30)] {
            assert!(!worst("x", &[expected], &[got], limits(1.0), |_| false).passes());
        }
    }
}
