//! Keeping gradients small.

use super::TrainError;

/// What a gradient is cut to before an optimizer's step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Clip {
    /// All gradients are scaled by one factor, so that the root of the sum of all their squares is this at most.
    Norm(f32),
    /// Each element is cut to this at most, and to its negative at least.
    Value(f32),
}

impl Clip {
    /// # Errors
    /// [`TrainError::Options`].
    pub(super) fn check(self) -> Result<(), TrainError> {
        let (Self::Norm(limit) | Self::Value(limit)) = self;
        if limit > 0.0 && limit.is_finite() {
            return Ok(());
        }
        Err(TrainError::Options {
            field: "clip",
            detail: format!("{limit}: a finite limit above 0"),
        })
    }

    /// What gradients of this norm are multiplied by.
    pub(super) fn factor(self, norm: f64) -> f32 {
        match self {
            // Not above: the product must not exceed the limit because the factor was rounded up. One part in 2^24 is that rounding.
            Self::Norm(limit) if norm > f64::from(limit) => {
                (f64::from(limit) / norm * (1.0 - f64::from(f32::EPSILON))) as f32
            }
            Self::Norm(_) | Self::Value(_) => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gradients_are_left_alone() {
        assert_eq!(Clip::Norm(2.0).factor(2.0), 1.0);
        assert_eq!(Clip::Norm(2.0).factor(0.0), 1.0);
        assert_eq!(Clip::Value(2.0).factor(1e9), 1.0);
    }

    #[test]
    fn large_ones_end_at_the_limit_and_never_above() {
        for norm in [2.000_001, 3.0, 7.7, 1e3, 1e30] {
            let clipped = f64::from(Clip::Norm(2.0).factor(norm)) * norm;
            assert!((2.0 - 1e-6..=2.0).contains(&clipped), "{norm}: {clipped}");
        }
    }

    #[test]
    fn a_limit_is_above_zero() {
        for limit in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(Clip::Norm(limit).check().is_err());
            assert!(Clip::Value(limit).check().is_err());
        }
        assert!(Clip::Norm(1.0).check().is_ok());
    }
}
