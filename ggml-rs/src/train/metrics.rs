//! What an evaluation measures, and how sure it is.

use std::fmt;

/// What a model's outputs are held to, sample by sample. Computed in f64 on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Task {
    /// Outputs are logits of classes, labels their probabilities (one-hot, for one): the loss is the cross entropy, and a sample is
    /// right if the largest logit is that of the most probable class. One with a NaN is not.
    Classify,
    /// The loss is the mean square of the differences between outputs and labels.
    Regress,
}

impl Task {
    /// The loss of one sample.
    ///
    /// # Panics
    /// Unless there are as many labels as outputs.
    #[must_use]
    pub fn loss(self, outputs: &[f32], labels: &[f32]) -> f64 {
        assert_eq!(outputs.len(), labels.len(), "outputs and labels");
        match self {
            Self::Classify => cross_entropy(outputs, labels),
            Self::Regress => mean_square(outputs, labels),
        }
    }

    /// Whether a sample is right, where that can be said.
    ///
    /// # Panics
    /// As [`Task::loss`].
    #[must_use]
    pub fn right(self, outputs: &[f32], labels: &[f32]) -> Option<bool> {
        assert_eq!(outputs.len(), labels.len(), "outputs and labels");
        match self {
            Self::Classify => Some(match (largest(outputs), largest(labels)) {
                (Some(answer), Some(class)) => answer == class,
                _ => false,
            }),
            Self::Regress => None,
        }
    }
}

/// `-sum(labels * log(softmax(logits)))`.
fn cross_entropy(logits: &[f32], labels: &[f32]) -> f64 {
    let top = logits
        .iter()
        .fold(f64::NEG_INFINITY, |top, &logit| top.max(f64::from(logit)));
    let sum: f64 = logits
        .iter()
        .map(|&logit| libm::exp(f64::from(logit) - top))
        .sum();
    let log_sum = top + libm::log(sum);
    let terms = logits
        .iter()
        .zip(labels)
        .filter(|(_, label)| **label != 0.0);
    terms
        .map(|(&logit, &label)| f64::from(label) * (log_sum - f64::from(logit)))
        .sum()
}

fn mean_square(outputs: &[f32], labels: &[f32]) -> f64 {
    let squares = outputs.iter().zip(labels).map(|(&output, &label)| {
        let difference = f64::from(output) - f64::from(label);
        difference * difference
    });
    squares.sum::<f64>() / outputs.len() as f64
}

/// Where the largest value is, the first of equal ones. Where one is NaN nothing is the largest.
fn largest(values: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if *value > values[best] {
            best = i;
        }
    }
    Some(best)
}

/// A mean of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error: the samples' deviation (with n - 1) over the root of n. NaN for one sample, which has none.
    pub standard_error: f64,
    /// How many samples.
    pub samples: usize,
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ± {:.4}", self.value, self.standard_error)
    }
}

/// A part of samples.
///
/// ```
/// use ggml_rs::train::Proportion;
///
/// let accuracy = Proportion { hits: 349, samples: 360 };
/// let (low, high) = accuracy.wilson_95();
/// assert!(low < accuracy.value() && accuracy.value() < high);
/// assert_eq!(accuracy.to_string(), "96.94% (94.61% to 98.29%)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proportion {
    /// How many are in the part.
    pub hits: usize,
    /// How many samples.
    pub samples: usize,
}

impl Proportion {
    /// The part, 0 to 1; NaN of no samples.
    #[must_use]
    pub fn value(self) -> f64 {
        self.hits as f64 / self.samples as f64
    }

    /// Wilson's score interval of 95%: where the part lies of which these samples were drawn. It stays within 0 and 1, and is
    /// no point even where all samples agree. E. B. Wilson, Probable Inference, JASA 22 (1927).
    #[must_use]
    pub fn wilson_95(self) -> (f64, f64) {
        /// The normal distribution has 95% between -z and z.
        const Z: f64 = 1.959_963_984_540_054;
        let (n, p) = (self.samples as f64, self.value());
        let scale = 1.0 / (1.0 + Z * Z / n);
        let centre = scale * (p + Z * Z / (2.0 * n));
        let half = scale * Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        // Rounding must not keep the part itself out of its interval.
        (
            (centre - half).max(0.0).min(p),
            (centre + half).min(1.0).max(p),
        )
    }
}

impl fmt::Display for Proportion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.wilson_95();
        let percent = [self.value(), low, high].map(|part| 100.0 * part);
        write!(
            f,
            "{:.2}% ({:.2}% to {:.2}%)",
            percent[0], percent[1], percent[2]
        )
    }
}

/// What a model does on a data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// The loss of a sample.
    pub loss: Mean,
    /// How many samples are right, where the task says what that is.
    pub accuracy: Option<Proportion>,
}

/// Sums for an [`Evaluation`].
#[derive(Debug)]
pub(super) struct Tally {
    task: Task,
    samples: usize,
    mean: f64,
    /// Of squared deviations from the mean.
    deviations: f64,
    right: usize,
}

impl Tally {
    pub fn new(task: Task) -> Self {
        Self {
            task,
            samples: 0,
            mean: 0.0,
            deviations: 0.0,
            right: 0,
        }
    }

    /// Takes one sample in. The sums are Welford's, which do not cancel.
    pub fn add(&mut self, outputs: &[f32], labels: &[f32]) {
        let loss = self.task.loss(outputs, labels);
        self.samples += 1;
        let before = loss - self.mean;
        self.mean += before / self.samples as f64;
        self.deviations += before * (loss - self.mean);
        self.right += usize::from(self.task.right(outputs, labels) == Some(true));
    }

    pub fn finish(&self) -> Evaluation {
        let n = self.samples as f64;
        let accuracy = Proportion {
            hits: self.right,
            samples: self.samples,
        };
        Evaluation {
            loss: Mean {
                value: self.mean,
                standard_error: (self.deviations / (n - 1.0) / n).sqrt(),
                samples: self.samples,
            },
            accuracy: (self.task == Task::Classify).then_some(accuracy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    }

    #[test]
    fn cross_entropy_follows_its_formula_and_does_not_overflow() {
        let logits = [1.0_f32, -2.0, 0.5];
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        let expected = -(0.25 * (1_f64.exp() / sum).ln() + 0.75 * (0.5_f64.exp() / sum).ln());
        close(Task::Classify.loss(&logits, &[0.25, 0.0, 0.75]), expected);
        close(Task::Classify.loss(&[1e4, 0.0], &[1.0, 0.0]), 0.0);
        close(Task::Classify.loss(&[1e4, 0.0], &[0.0, 1.0]), 1e4);
    }

    #[test]
    fn the_largest_logit_is_the_answer() {
        let right = |outputs| Task::Classify.right(outputs, &[0.0, 1.0, 0.0]);
        assert_eq!(right(&[0.0, 2.0, 1.0]), Some(true));
        assert_eq!(right(&[3.0, 2.0, 1.0]), Some(false));
        // Equal outputs are no answer that happens to be right.
        assert_eq!(right(&[0.0; 3]), Some(false));
        assert_eq!(Task::Regress.right(&[0.0], &[0.0]), None);
    }

    /// 1, 2, 4, 9: mean 4, squared deviations 9 + 4 + 0 + 25 = 38.
    #[test]
    fn means_have_their_standard_error() {
        let mut tally = Tally::new(Task::Regress);
        for value in [1.0_f32, 2.0, 4.0, 9.0] {
            tally.add(&[value.sqrt(), value.sqrt()], &[0.0, 0.0]);
        }
        let loss = tally.finish().loss;
        assert!((loss.value - 4.0).abs() < 1e-6 && loss.samples == 4);
        assert!((loss.standard_error - (38.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn one_sample_has_no_standard_error() {
        let mut tally = Tally::new(Task::Regress);
        tally.add(&[1.0], &[0.0]);
        let loss = tally.finish().loss;
        assert!(loss.value == 1.0 && loss.standard_error.is_nan());
    }

    /// The bounds are the roots of (p - x)² = z² x (1 - x) / n: where a score test of x just does not refuse p.
    #[test]
    fn wilsons_bounds_solve_his_equation() {
        for (hits, samples) in [(0, 10), (1, 10), (5, 10), (349, 360), (360, 360)] {
            let part = Proportion { hits, samples };
            let (low, high) = part.wilson_95();
            let p = part.value();
            for x in [low, high] {
                let spread = 1.959_963_984_540_054_f64.powi(2) * x * (1.0 - x) / samples as f64;
                assert!(((p - x).powi(2) - spread).abs() < 1e-12, "{part:?}: {x}");
            }
            assert!(low <= p && p <= high && low < high);
        }
    }
}
