//! The comparison that upstream's test-backend-ops makes, against a reference in double precision.

use crate::error::{Call, Result};

/// The normalised mean squared error: sum((r-g)^2) / sum(r^2), over a reference r and a result g.
///
/// 0 when both sums are 0; infinite when the reference is all zeros and the result is not.
/// The formula is that of ggml's test-backend-ops.
///
/// ```
/// use ggml_rs::check::nmse;
/// assert_eq!(nmse(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
/// assert_eq!(nmse(&[3.0, 4.0], &[3.0, 5.0]), 1.0 / 25.0);
/// ```
pub fn nmse(reference: &[f64], got: &[f32]) -> f64 {
    let (mut error, mut power) = (0.0, 0.0);
    for (&r, &g) in reference.iter().zip(got) {
        let difference = r - f64::from(g);
        error += difference * difference;
        power += r * r;
    }
    if error == 0.0 { 0.0 } else { error / power }
}

/// The outcome of comparing a result with its reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// [`nmse`] over all elements; NaN when either side holds a NaN.
    pub nmse: f64,
    /// The element that differs most in absolute value.
    pub worst: Option<Difference>,
    /// The first element where one side is NaN, or infinite with another sign than the other side.
    pub mismatch: Option<Mismatch>,
}

impl Comparison {
    /// Whether every NaN rule holds and the error stays within `limit`.
    pub fn within(&self, limit: f64) -> bool {
        self.mismatch.is_none() && self.nmse <= limit
    }
}

/// One element of a result beside its reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Index in the flattened tensor.
    pub index: usize,
    /// The reference's value.
    pub reference: f64,
    /// The result's value.
    pub got: f32,
}

/// A disagreement that no tolerance covers.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Mismatch {
    /// Either side is NaN.
    Nan(Difference),
    /// One side is infinite, or at f32's largest value, and the other is not, or has the other sign.
    Infinity(Difference),
}

/// Compares `got` with `reference` element by element.
///
/// A NaN on either side is a mismatch, as is an infinity that the other side does not share with the same
/// sign. As in test-backend-ops, magnitudes from `f32::MAX` up count as infinite: a reference that overflows
/// single precision is infinite in the result.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the lengths differ.
#[track_caller]
pub fn compare(reference: &[f64], got: &[f32]) -> Result<Comparison> {
    let call = Call::new("compare");
    if reference.len() != got.len() {
        let detail = format!(
            "the reference has {} elements, the result {}",
            reference.len(),
            got.len()
        );
        return Err(call.shape(detail));
    }
    let mut sums = Sums::default();
    for (index, (&reference, &got)) in reference.iter().zip(got).enumerate() {
        sums.add(Difference {
            index,
            reference,
            got,
        });
    }
    Ok(sums.finish())
}

#[derive(Default)]
struct Sums {
    error: f64,
    power: f64,
    worst: Option<(f64, Difference)>,
    mismatch: Option<Mismatch>,
}

impl Sums {
    fn add(&mut self, pair: Difference) {
        if pair.reference.is_nan() || pair.got.is_nan() {
            self.mismatch.get_or_insert(Mismatch::Nan(pair));
        } else if overflow(pair.reference) != 0 || overflow(pair.got.into()) != 0 {
            if overflow(pair.reference) != overflow(pair.got.into()) {
                self.mismatch.get_or_insert(Mismatch::Infinity(pair));
            }
            // Infinities of one sign agree; their difference would be NaN.
            return;
        }
        let difference = pair.reference - f64::from(pair.got);
        self.error += difference * difference;
        self.power += pair.reference * pair.reference;
        if self.worst.is_none_or(|(worst, _)| difference.abs() > worst) {
            self.worst = Some((difference.abs(), pair));
        }
    }

    fn finish(self) -> Comparison {
        Comparison {
            nmse: if self.error == 0.0 {
                0.0
            } else {
                self.error / self.power
            },
            worst: self.worst.map(|(_, pair)| pair),
            mismatch: self.mismatch,
        }
    }
}

/// The sign of an infinity or of a magnitude that single precision cannot exceed; 0 otherwise.
fn overflow(value: f64) -> i8 {
    if value.abs() < f64::from(f32::MAX) {
        0
    } else if value > 0.0 {
        1
    } else {
        -1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_no_error() {
        let found = compare(&[1.0, -2.0], &[1.0, -2.0]).unwrap();
        assert_eq!(found.nmse, 0.0);
        assert!(found.within(0.0));
        assert_eq!(nmse(&[0.0], &[0.0]), 0.0);
        assert_eq!(nmse(&[0.0], &[1.0]), f64::INFINITY);
    }

    #[test]
    fn the_worst_element_is_found() {
        let found = compare(&[1.0, 2.0, 3.0], &[1.0, 2.5, 2.9]).unwrap();
        assert_eq!(found.worst.unwrap().index, 1);
        assert!(found.nmse > 0.01 && !found.within(0.01));
    }

    #[test]
    fn nan_is_never_within_a_limit() {
        for (reference, got) in [(f64::NAN, 1.0), (1.0, f32::NAN), (f64::NAN, f32::NAN)] {
            let found = compare(&[0.0, reference], &[0.0, got]).unwrap();
            assert!(matches!(
                found.mismatch,
                Some(Mismatch::Nan(Difference { index: 1, .. }))
            ));
            assert!(!found.within(f64::INFINITY));
        }
    }

    #[test]
    fn infinities_must_share_their_sign() {
        assert!(compare(&[1e300], &[f32::INFINITY]).unwrap().within(0.0));
        for got in [f32::NEG_INFINITY, 1.0] {
            let found = compare(&[f64::INFINITY], &[got]).unwrap();
            assert!(matches!(found.mismatch, Some(Mismatch::Infinity(_))));
        }
        assert!(
            compare(&[1.0], &[f32::INFINITY])
                .unwrap()
                .mismatch
                .is_some()
        );
    }

    #[test]
    fn lengths_must_agree() {
        assert!(
            compare(&[1.0], &[])
                .unwrap_err()
                .to_string()
                .contains("1 elements, the result 0")
        );
    }
}
