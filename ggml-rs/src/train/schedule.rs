//! How the learning rate changes from step to step.
//!
//! A schedule is a pure function of the number of steps made so far, so a resumed run needs nothing but that number.

use std::f64::consts::PI;

use super::TrainError;

/// What the learning rate is multiplied by: a linear warm-up, then a [`Decay`].
///
/// ```
/// use ggml_rs::train::{Decay, Schedule};
///
/// let schedule = Schedule { warmup: 10, decay: Decay::Cosine { steps: 100, floor: 0.1 } };
/// assert_eq!(schedule.factor(0), 0.1);
/// assert_eq!(schedule.factor(9), 1.0);
/// assert_eq!(schedule.factor(10), 1.0);
/// assert!((schedule.factor(60) - 0.55).abs() < 1e-15);
/// assert_eq!(schedule.factor(1000), 0.1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Schedule {
    /// Over so many steps the rate rises from `1 / warmup` of itself to all of it.
    pub warmup: u64,
    /// What comes after.
    pub decay: Decay,
}

/// How the learning rate falls after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Decay {
    /// It does not: the factor is 1.
    #[default]
    Constant,
    /// In a straight line from 1 to `floor` over `steps`, where it stays.
    Linear {
        /// How many steps it takes.
        steps: u64,
        /// The last factor, 0 to 1.
        floor: f64,
    },
    /// Along half a cosine from 1 to `floor` over `steps`, where it stays: `floor + (1 - floor) (1 + cos(pi t / steps)) / 2`.
    Cosine {
        /// How many steps it takes.
        steps: u64,
        /// The last factor, 0 to 1.
        floor: f64,
    },
    /// Times `factor` after every so many steps, one at least.
    Step {
        /// How many steps a level lasts.
        every: u64,
        /// What one level is to the one before: above 0, and 1 at most.
        factor: f64,
    },
}

impl Schedule {
    /// The factor of the step that comes after `done` steps.
    #[must_use]
    pub fn factor(&self, done: u64) -> f64 {
        if done < self.warmup {
            return (done + 1) as f64 / self.warmup as f64;
        }
        self.decay.factor(done - self.warmup)
    }

    /// # Errors
    /// [`TrainError::Options`].
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let refuse = |detail: String| {
            Err(TrainError::Options {
                field: "schedule",
                detail,
            })
        };
        match self.decay {
            Decay::Constant => Ok(()),
            Decay::Linear { steps, floor } | Decay::Cosine { steps, floor } => {
                if steps == 0 || !(0.0..=1.0).contains(&floor) {
                    return refuse(format!(
                        "{steps} steps down to {floor}: at least 1 step, down to 0 to 1"
                    ));
                }
                Ok(())
            }
            Decay::Step { every, factor } => {
                if every == 0 || !(factor > 0.0 && factor <= 1.0) {
                    return refuse(format!(
                        "times {factor} every {every} steps: at least 1 step, and a factor above 0 and up to 1"
                    ));
                }
                Ok(())
            }
        }
    }
}

impl Decay {
    fn factor(&self, done: u64) -> f64 {
        // How much of the way is left behind.
        let part = |steps: u64| (done as f64 / steps as f64).min(1.0);
        match *self {
            Self::Constant => 1.0,
            Self::Linear { steps, floor } => 1.0 - (1.0 - floor) * part(steps),
            // Not the system's cosine, which differs from one to the next: a resumed run may be on another.
            Self::Cosine { steps, floor } => {
                floor + (1.0 - floor) * (1.0 + libm::cos(PI * part(steps))) / 2.0
            }
            Self::Step { every, factor } => libm::pow(factor, (done / every.max(1)) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-15, "{found}, not {expected}");
    }

    #[test]
    fn the_default_is_constant() {
        for done in [0, 1, 1000, u64::MAX] {
            assert_eq!(Schedule::default().factor(done), 1.0);
        }
    }

    #[test]
    fn warm_up_is_a_straight_line_that_ends_at_one() {
        let schedule = Schedule {
            warmup: 4,
            decay: Decay::Constant,
        };
        let found: Vec<_> = (0..6).map(|done| schedule.factor(done)).collect();
        assert_eq!(found, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn cosine_passes_through_its_closed_forms() {
        let schedule = Schedule {
            warmup: 3,
            decay: Decay::Cosine {
                steps: 12,
                floor: 0.2,
            },
        };
        // cos of 0, 60, 90, 120 and 180 degrees.
        for (done, cos) in [
            (0, 1.0),
            (4, 0.5),
            (6, 0.0),
            (8, -0.5),
            (12, -1.0),
            (99, -1.0),
        ] {
            close(schedule.factor(3 + done), 0.2 + 0.8 * (1.0 + cos) / 2.0);
        }
    }

    #[test]
    fn linear_and_step_follow_their_formulas() {
        let linear = Decay::Linear {
            steps: 10,
            floor: 0.5,
        };
        for (done, expected) in [(0, 1.0), (5, 0.75), (10, 0.5), (11, 0.5)] {
            close(linear.factor(done), expected);
        }
        let step = Decay::Step {
            every: 3,
            factor: 0.5,
        };
        for (done, expected) in [(0, 1.0), (2, 1.0), (3, 0.5), (8, 0.25), (9, 0.125)] {
            close(step.factor(done), expected);
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        let refused = |decay| Schedule { warmup: 0, decay }.check().is_err();
        assert!(refused(Decay::Cosine {
            steps: 0,
            floor: 0.0
        }));
        assert!(refused(Decay::Linear {
            steps: 1,
            floor: f64::NAN
        }));
        assert!(refused(Decay::Step {
            every: 0,
            factor: 0.5
        }));
        for factor in [0.0, 1.5, f64::NAN] {
            assert!(refused(Decay::Step { every: 1, factor }));
        }
        assert!(!refused(Decay::Step {
            every: 1,
            factor: 0.5
        }));
    }
}
