//! What inputs are filled with: random values by seed.

use crate::error::{Call, Result};

/// How an input's values are drawn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Data {
    /// Uniform in a range.
    Within(f32, f32),
    /// Uniform in a range, and at least `margin` away from each of `kinks`, where a function has no derivative.
    Smooth {
        /// The range.
        range: (f32, f32),
        /// What values are moved away from.
        kinks: Vec<f32>,
        /// How far.
        margin: f32,
    },
    /// Even steps through a range, shuffled: no two values are near each other, as maxima want.
    Distinct(f32, f32),
    /// Positive values, each row of which adds up to 1: probabilities.
    Shares,
    /// Exactly these.
    Given(Vec<f32>),
}

impl Data {
    /// Uniform in [-1, 1).
    pub fn unit() -> Self {
        Self::Within(-1.0, 1.0)
    }

    /// Uniform in a range, but at least 0.05 away from these values: farther than any step of a difference.
    pub fn smooth(low: f32, high: f32, kinks: &[f32]) -> Self {
        Self::Smooth {
            range: (low, high),
            kinks: kinks.to_vec(),
            margin: 0.05,
        }
    }

    /// As many values as `ne` has elements.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where the values are given and of another number.
    pub(super) fn draw(&self, call: Call, ne: [usize; 4], random: &mut Random) -> Result<Vec<f32>> {
        let count = ne.iter().product();
        let mut draw =
            |low, high| -> Vec<f32> { (0..count).map(|_| random.within(low, high)).collect() };
        Ok(match self {
            &Self::Within(low, high) => draw(low, high),
            Self::Smooth {
                range,
                kinks,
                margin,
            } => {
                let mut values = draw(range.0, range.1);
                values
                    .iter_mut()
                    .for_each(|value| move_away(value, kinks, *margin));
                values
            }
            &Self::Distinct(low, high) => distinct(count, low, high, random),
            Self::Shares => {
                let mut values = draw(0.1, 1.0);
                values.chunks_mut(ne[0]).for_each(normalise);
                values
            }
            Self::Given(values) if values.len() == count => values.clone(),
            Self::Given(values) => {
                let detail = format!("{} values for {count} elements", values.len());
                return Err(call.shape(detail));
            }
        })
    }
}

/// Past the nearest kink's margin, on the side where the value lies.
fn move_away(value: &mut f32, kinks: &[f32], margin: f32) {
    for kink in kinks {
        let distance = *value - kink;
        if distance.abs() < margin {
            *value = kink + margin.copysign(distance);
        }
    }
}

fn distinct(count: usize, low: f32, high: f32, random: &mut Random) -> Vec<f32> {
    let step = (high - low) / count as f32;
    let mut values: Vec<f32> = (0..count).map(|i| low + step * i as f32).collect();
    for i in (1..count).rev() {
        values.swap(i, random.below(i + 1));
    }
    values
}

fn normalise(row: &mut [f32]) {
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|value| *value /= sum);
}

/// SplitMix64: a few lines, and the same numbers everywhere.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn within(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next() >> 40) as f32 / (1 << 24) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_distance_from_kinks() {
        let data = Data::smooth(-1.0, 1.0, &[0.0, 0.5]);
        let values = data
            .draw(Call::new("draw"), [1000, 1, 1, 1], &mut Random::new(7))
            .unwrap();
        let near = |kink: f32| values.iter().any(|value| (value - kink).abs() < 0.0499);
        assert!(!near(0.0) && !near(0.5));
        assert!(values.iter().any(|&value| value < 0.0) && values.iter().any(|&value| value > 0.0));
    }

    #[test]
    fn distinct_values_are_a_shuffled_grid() {
        let data = Data::Distinct(0.0, 1.0);
        let mut values = data
            .draw(Call::new("draw"), [10, 10, 1, 1], &mut Random::new(7))
            .unwrap();
        assert!(values.windows(2).any(|pair| pair[0] > pair[1]));
        values.sort_by(f32::total_cmp);
        assert!(values.windows(2).all(|pair| pair[1] - pair[0] > 0.009));
    }

    #[test]
    fn shares_add_up_to_one() {
        let values = Data::Shares
            .draw(Call::new("draw"), [5, 3, 1, 1], &mut Random::new(7))
            .unwrap();
        assert!(
            values
                .chunks(5)
                .all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6)
        );
    }

    #[test]
    fn given_values_must_be_as_many_as_elements() {
        let data = Data::Given(vec![1.0; 3]);
        assert!(
            data.draw(Call::new("draw"), [4, 1, 1, 1], &mut Random::new(7))
                .is_err()
        );
    }
}
