//! Central differences of a sum in double precision, and whether it is smooth where they are taken.
//!
//! A difference over a step `h` is wrong by `h^2 f'''/6` and by rounding, `eps |f| / h`. Two of them, over `h` and `h/2`,
//! combine to one that is wrong by the fourth power of `h` (Richardson). With `h = 2^-9` and values and derivatives of the order
//! of 1 to 100 that is about 1e-11 and 1e-11: a thousand times below what is compared with it. Terms of the sum that a step does not
//! change are left out of its difference, so that they add no rounding.
//!
//! Differences to one side are compared with those to the other, each from three values. For a smooth function they differ by
//! `h^2 f'''/6`; at a kink, or with one within a step, by its jump or a part of it. Where they differ a smaller step tells a
//! function that bends from one that breaks.

use crate::error::Result;

/// Steps, the next one where the one before finds the function not smooth.
const STEPS: [f64; 3] = [1.0 / 512.0, 1.0 / 8192.0, 1.0 / 131_072.0];

/// How much the sides may disagree, relative to the input's largest derivative: a step of the first kind makes about 1e-6 of
/// a smooth function.
const SMOOTH: f64 = 1e-4;

/// A derivative by one argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope {
    /// The derivative.
    pub value: f64,
    /// How far rounding may have moved it.
    pub rounding: f64,
    /// Differences to the left and to the right.
    pub sides: [f64; 2],
}

impl Slope {
    /// Whether the sides agree, for a function whose largest derivative this is.
    fn is_smooth(&self, largest: f64) -> bool {
        let [left, right] = self.sides;
        let apart = (left - right).abs();
        self.value.is_finite() && apart <= SMOOTH * largest.max(self.value.abs()) + self.rounding
    }
}

/// The derivatives of the sum of `f`'s terms by some of its arguments; `Err` holds the slope where there is a kink.
///
/// # Errors
/// What `f` returns.
pub fn slopes(
    at: &[f64],
    arguments: &[usize],
    mut f: impl FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<Vec<std::result::Result<Slope, Slope>>> {
    let mut values = at.to_vec();
    let middle = f(&values)?;
    let mut slope = |argument: usize, step: f64| {
        let mut change = |step: f64| -> Result<Change> {
            values[argument] = at[argument] + step;
            let terms = f(&values)?;
            values[argument] = at[argument];
            Ok(Change::between(&middle, &terms))
        };
        let right = [change(step)?, change(step / 2.0)?];
        let left = [change(-step)?, change(-step / 2.0)?];
        Ok::<_, crate::Error>(combine(step, left, right))
    };
    let mut found = Vec::with_capacity(arguments.len());
    for &argument in arguments {
        found.push(slope(argument, STEPS[0])?);
    }
    let largest = |found: &[Slope]| {
        let finite = found.iter().map(|slope| slope.value.abs());
        finite.filter(|value| value.is_finite()).fold(0.0, f64::max)
    };
    for step in &STEPS[1..] {
        let largest = largest(&found);
        for (found, &argument) in found.iter_mut().zip(arguments) {
            if !found.is_smooth(largest) {
                *found = slope(argument, *step)?;
            }
        }
    }
    let largest = largest(&found);
    let judged = found
        .into_iter()
        .map(|slope| match slope.is_smooth(largest) {
            true => Ok(slope),
            false => Err(slope),
        });
    Ok(judged.collect())
}

/// How a sum differs from another.
#[derive(Clone, Copy)]
struct Change {
    sum: f64,
    /// The size of the terms that differ.
    size: f64,
}

impl Change {
    fn between(from: &[f64], to: &[f64]) -> Self {
        let mut change = Self {
            sum: 0.0,
            size: 0.0,
        };
        for (from, to) in from.iter().zip(to) {
            // Bits, so that NaN and infinities that stay as they are do not count.
            if from.to_bits() != to.to_bits() {
                change.sum += to - from;
                change.size += from.abs() + to.abs();
            }
        }
        change
    }
}

/// A slope from changes over a whole and half a step.
fn combine(step: f64, left: [Change; 2], right: [Change; 2]) -> Slope {
    let side = |[whole, half]: [Change; 2]| (4.0 * half.sum - whole.sum) / step;
    let wide = (right[0].sum - left[0].sum) / (2.0 * step);
    let narrow = (right[1].sum - left[1].sum) / step;
    // Each term is right to some units in the last place, and counts eightfold at most.
    let size = left.iter().chain(&right).map(|change| change.size);
    Slope {
        value: (4.0 * narrow - wide) / 3.0,
        rounding: 16.0 * f64::EPSILON * size.fold(0.0, f64::max) / step,
        sides: [-side(left), side(right)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(x: f64, f: impl Fn(f64) -> f64) -> std::result::Result<Slope, Slope> {
        slopes(&[x], &[0], |x| Ok(vec![f(x[0])])).unwrap()[0]
    }

    #[test]
    fn smooth_functions_are_differentiated_to_eleven_digits() {
        let at = [0.3, -1.2, 2.5];
        let f = |x: &[f64]| Ok(vec![x[0].exp() * x[1].sin(), x[2].powi(5)]);
        let found = slopes(&at, &[0, 1, 2], f).unwrap();
        let exact = [
            at[0].exp() * at[1].sin(),
            at[0].exp() * at[1].cos(),
            5.0 * at[2].powi(4),
        ];
        for (found, exact) in found.iter().zip(exact) {
            let found = found.unwrap().value;
            assert!(
                (found - exact).abs() < 1e-10 * exact.abs().max(1.0),
                "{found} {exact}"
            );
        }
    }

    #[test]
    fn a_kink_is_found_on_the_spot_and_told_from_one_nearby() {
        let relu = |x: f64| x.max(0.0);
        // Central differences of relu are 1/2 at 0 over every step, those of the absolute value 0.
        assert_eq!(one(0.0, relu).unwrap_err().sides, [0.0, 1.0]);
        assert_eq!(one(0.0, f64::abs).unwrap_err().sides, [-1.0, 1.0]);
        assert_eq!(one(1e-6, relu).unwrap_err().sides[1], 1.0);
        for x in [-0.0015, 0.0004, 0.0019, 0.01] {
            let exact = f64::from(u8::from(x > 0.0));
            let slope = one(x, relu).unwrap().value;
            assert!((slope - exact).abs() < 1e-10, "{x}: {slope}");
        }
    }

    #[test]
    fn a_function_that_bends_is_no_kink() {
        let slope = one(0.003, f64::ln).unwrap();
        assert!((slope.value * 0.003 - 1.0).abs() < 1e-6, "{slope:?}");
        assert!(one(0.0, f64::ln).is_err());
    }

    #[test]
    fn terms_that_do_not_change_add_no_rounding() {
        let f = |x: &[f64]| Ok(vec![1e12 / 3.0, f64::NAN, f64::INFINITY, x[0] * x[0]]);
        let slope = slopes(&[1.5], &[0], f).unwrap()[0].unwrap();
        assert!((slope.value - 3.0).abs() < 1e-11, "{slope:?}");
    }
}
