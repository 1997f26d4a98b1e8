//! Central differences of a function in double precision.
//!
//! A difference over a step `h` is wrong by `h^2 f'''/6` and by rounding, `eps |f| / h`. Two of them, over `h` and `h/2`,
//! combine to one that is wrong by the fourth power of `h` (Richardson). With `h = 2^-9` and values, derivatives and sums of
//! the order of 1 to 100 that is about 1e-11 and 1e-11: a thousand times below what is compared with it.

use crate::error::{Error, OpError, Result};

const STEP: f64 = 1.0 / 512.0;

/// How much the two differences may disagree, relative to the input's largest derivative: halving the step changes a smooth
/// function's by `h^2 f'''/8`, about 1e-6, and a kink's within reach by a part of its jump.
const SMOOTH: f64 = 1e-4;

/// The derivative of `f` by each of its arguments.
///
/// # Errors
/// What `f` returns; [`Error::Param`] near a kink of `f`.
pub fn derivatives(
    name: &str,
    at: &[f64],
    mut f: impl FnMut(&[f64]) -> Result<f64>,
) -> Result<Vec<f64>> {
    let mut values = at.to_vec();
    let mut found = Vec::with_capacity(at.len());
    for (i, &x) in at.iter().enumerate() {
        let mut central = |step: f64| {
            // The steps as they are after rounding.
            let (low, high) = (x - step, x + step);
            values[i] = high;
            let above = f(&values)?;
            values[i] = low;
            let below = f(&values)?;
            values[i] = x;
            Ok::<_, Error>((above - below) / (high - low))
        };
        let (wide, narrow) = (central(STEP)?, central(STEP / 2.0)?);
        found.push((wide, narrow));
    }
    let largest = found
        .iter()
        .fold(0.0, |most: f64, (_, narrow)| most.max(narrow.abs()));
    for (i, (wide, narrow)) in found.iter().enumerate() {
        if (wide - narrow).abs() > SMOOTH * largest || !narrow.is_finite() {
            let detail = format!(
                "the loss has a kink near `{name}`[{i}] = {}: differences {wide:e} and {narrow:e}",
                at[i]
            );
            return Err(Error::Param(OpError::new("gradients", detail, Vec::new())));
        }
    }
    Ok(found
        .into_iter()
        .map(|(wide, narrow)| (4.0 * narrow - wide) / 3.0)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooth_functions_are_differentiated_to_eleven_digits() {
        let at = [0.3, -1.2, 2.5];
        let f = |x: &[f64]| Ok(x[0].exp() * x[1].sin() + x[2].powi(5));
        let found = derivatives("x", &at, f).unwrap();
        let exact = [
            at[0].exp() * at[1].sin(),
            at[0].exp() * at[1].cos(),
            5.0 * at[2].powi(4),
        ];
        for (found, exact) in found.iter().zip(exact) {
            assert!(
                (found - exact).abs() < 1e-10 * exact.abs().max(1.0),
                "{found} {exact}"
            );
        }
    }

    #[test]
    fn a_kink_within_a_step_is_an_error() {
        for x in [-0.0015, 0.0004, 0.0019] {
            let error = derivatives("x", &[x], |x| Ok(x[0].max(0.0))).unwrap_err();
            assert!(error.to_string().contains("kink near `x`[0]"), "{error}");
        }
        assert_eq!(
            derivatives("x", &[0.01], |x| Ok(x[0].max(0.0))).unwrap(),
            [1.0]
        );
    }
}
