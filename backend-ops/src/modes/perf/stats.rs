//! What a series of timings comes to.

/// Times of one run each, in microseconds, one from every repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds what a repeat took per run.
    pub fn push(&mut self, us: f64) {
        self.0.push(us);
    }

    /// How many repeats there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median: the mean of the two in the middle where their number is even. NaN without repeats.
    #[must_use]
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        }
    }

    /// The shortest and the longest. NaN without repeats.
    #[must_use]
    pub fn range(&self) -> [f64; 2] {
        let sorted = self.sorted();
        [sorted.first(), sorted.last()].map(|end| end.copied().unwrap_or(f64::NAN))
    }

    /// From the shortest to the longest, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let [min, max] = self.range();
        (max - min) / self.median()
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series<const N: usize>(times: [f64; N]) -> Series {
        times.into_iter().collect()
    }

    #[test]
    fn the_median_ignores_an_outlier() {
        assert_eq!(series([2.0, 900.0, 1.0]).median(), 2.0);
        assert_eq!(series([4.0, 1.0, 3.0, 900.0]).median(), 3.5);
        assert_eq!(series([7.0]).median(), 7.0);
        assert!(series([]).median().is_nan());
    }

    #[test]
    fn the_spread_does_not() {
        assert_eq!(series([2.0, 3.0, 1.0]).spread(), 1.0);
        assert_eq!(series([5.0, 5.0]).spread(), 0.0);
        assert_eq!(series([10.0, 9.0, 12.0]).range(), [9.0, 12.0]);
    }
}
