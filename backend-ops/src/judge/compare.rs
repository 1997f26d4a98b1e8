//! Compares a result with what it must be, as the case measures it.

use ggml_rs::check::{self, Comparison, Mismatch};

use super::outcome::{Against, Failure};
use crate::case::{Case, Measure};
use crate::data::OperandData;

/// Compares what the case's measure compares.
pub(crate) fn compare(
    case: &dyn Case,
    data: &[OperandData],
    expected: &[f64],
    values: &[f32],
) -> Result<Comparison, Failure> {
    Ok(match case.measure() {
        Measure::Values => check::compare(expected, values)?,
        Measure::ValuesAndNan => {
            let (expected, values) = without_shared_nan(expected, values);
            check::compare(&expected, &values)?
        }
        Measure::RowSets(len) => check::compare(
            &sorted_rows(expected, len, f64::total_cmp),
            &sorted_rows(values, len, f32::total_cmp),
        )?,
        Measure::Ranks(ranks) => {
            let (expected, values) = ranks.of(data[0].values(), expected, values);
            check::compare(&expected, &values)?
        }
    })
}

/// Zeros in place of what is NaN on both sides, so that indices stay.
fn without_shared_nan(expected: &[f64], values: &[f32]) -> (Vec<f64>, Vec<f32>) {
    let pairs = expected.iter().zip(values);
    pairs
        .map(
            |(&expected, &value)| match expected.is_nan() && value.is_nan() {
                true => (0.0, 0.0),
                false => (expected, value),
            },
        )
        .unzip()
}

fn sorted_rows<T: Copy>(
    values: &[T],
    len: usize,
    order: fn(&T, &T) -> std::cmp::Ordering,
) -> Vec<T> {
    let mut sorted = values.to_vec();
    for row in sorted.chunks_mut(len.max(1)) {
        row.sort_by(order);
    }
    sorted
}

/// Upstream's rules in upstream's order: NaN, infinities, then the error.
pub(crate) fn verdict(
    comparison: &Comparison,
    limit: f64,
    against: Against,
) -> Result<(), Failure> {
    match comparison.mismatch {
        Some(Mismatch::Infinity(at)) => Err(Failure::Inf { at, against }),
        Some(Mismatch::Nan(at)) => Err(Failure::Nan { at, against }),
        None if comparison.within(limit) => Ok(()),
        // A kind of mismatch added later fails here, whatever its NMSE.
        _ => Err(Failure::Nmse {
            nmse: comparison.nmse,
            limit,
            worst: comparison.worst,
            against,
        }),
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::check::Difference;

    use super::*;

    fn comparison(nmse: f64, mismatch: Option<Mismatch>) -> Comparison {
        Comparison {
            nmse,
            worst: None,
            mismatch,
        }
    }

    #[test]
    fn a_mismatch_outweighs_any_nmse() {
        let at = Difference {
            index: 4,
            reference: 1.0,
            got: f32::NAN,
        };
        let nan = verdict(
            &comparison(0.0, Some(Mismatch::Nan(at))),
            1.0,
            Against::Reference,
        );
        assert_eq!(
            nan.expect_err("NaN fails").to_string(),
            "NaN at index 4 (device=NaN, f64 reference=1)"
        );
        let at = Difference {
            index: 0,
            reference: f64::INFINITY,
            got: 2.0,
        };
        let inf = verdict(
            &comparison(0.0, Some(Mismatch::Infinity(at))),
            1.0,
            Against::CpuBackend,
        );
        assert_eq!(
            inf.expect_err("Inf fails").to_string(),
            "inf mismatch at index 0 (device=2, CPU backend=inf)"
        );
    }

    #[test]
    fn the_limit_itself_passes() {
        assert!(verdict(&comparison(5e-4, None), 5e-4, Against::Reference).is_ok());
        assert!(verdict(&comparison(5.1e-4, None), 5e-4, Against::Reference).is_err());
        assert!(verdict(&comparison(f64::NAN, None), 5e-4, Against::Reference).is_err());
    }
}
