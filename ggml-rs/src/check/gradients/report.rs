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
    /// What the central differences give.
    pub expected: f64,
    /// The gradient.
    pub got: f64,
    /// Their distance, relative to the larger of `expected` and the root mean square of the input's gradient.
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
    /// How many elements' gradients were compared.
    pub elements: usize,
    /// The ops of the graph without its backward, as ggml names them.
    pub ops: BTreeSet<String>,
    /// The most tensors that a backward makes for one node of it. The check fails for more than a backward reserves.
    pub tensors_per_node: usize,
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
            "seed {}, {} elements\n  formula in f64: {}\n  device: {}",
            self.seed, self.elements, self.formula, self.device
        )
    }
}

/// The worst element of one input's gradient.
pub(super) fn worst(input: &str, expected: &[f64], got: &[f64], tolerance: f64) -> Deviation {
    let square: f64 = expected.iter().map(|value| value * value).sum();
    let typical = (square / expected.len() as f64).sqrt();
    let deviation = |index: usize| {
        let (expected, got) = (expected[index], got[index]);
        let distance = (expected - got).abs();
        // Both exactly zero is no error, whatever it would be relative to.
        let error = match distance {
            0.0 => 0.0,
            distance => distance / expected.abs().max(typical),
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
    (1..expected.len()).fold(deviation(0), |worst, index| larger(worst, deviation(index)))
}

/// The one with the larger error.
pub(super) fn larger(a: Deviation, b: Deviation) -> Deviation {
    if b.error > a.error { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_what_is_typical() {
        let found = worst("x", &[3.0, 0.0, -4.0, 0.0], &[3.0, 0.01, -4.0, 0.0], 1e-3);
        assert_eq!((found.index, found.error), (1, 0.01 / 2.5));
        assert!(!found.passes());
        assert!(worst("x", &[0.0], &[0.0], 0.0).passes());
    }

    #[test]
    fn nan_is_an_error() {
        for (expected, got) in [(1.0, f64::NAN), (f64::NAN, 1.0), (0.0, 1e-30)] {
            assert!(!worst("x", &[expected], &[got], 1.0).passes());
        }
    }
}
