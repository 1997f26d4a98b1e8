//! How near a result came to what it is compared with, element by element: what `--exact` prints and demands.
//!
//! NMSE says whether a result is good enough. Who changes a kernel wants to know which element went wrong, and whether a change
//! that should change nothing changed a bit. Distances are in units of the last place (ulp) of the result's own type at the
//! expected value; a correctly rounded result is within half of one.

use std::fmt;

use ggml_rs::DType;
use serde::{Deserialize, Serialize};

use crate::judge::outcome::Against;
use crate::judge::wire;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// To be told.
    Report,
    /// That no element is further away than so many ulp; 0 demands equal bits.
    Within(u32),
}

/// How near one comparison was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exact {
    /// What the result was compared with.
    pub against: Against,
    /// How many elements there are.
    pub elements: usize,
    /// How many of them have other bits than the expected value rounded to F32.
    pub differ: usize,
    /// The element that differs most; the first of them.
    pub worst: Option<Element>,
    /// The element that is the most ulp away; the first of them.
    pub furthest: Option<Element>,
}

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Element {
    /// Its place in the flat result.
    pub index: usize,
    /// Its place in each dimension, in ne order.
    pub place: [usize; 4],
    /// The device's value.
    #[serde(with = "wire::f32")]
    pub got: f32,
    /// The expected value.
    #[serde(with = "wire::f64")]
    pub expected: f64,
    /// The distance; infinite where only one side is NaN or infinite.
    #[serde(with = "wire::f64")]
    pub ulp: f64,
}

impl Element {
    fn has_equal_bits(&self) -> bool {
        let rounded = self.expected as f32;
        rounded.to_bits() == self.got.to_bits() || (rounded.is_nan() && self.got.is_nan())
    }

    fn difference(&self) -> f64 {
        distance(self.got, self.expected)
    }
}

/// Infinite where no number says how far it is.
fn distance(got: f32, expected: f64) -> f64 {
    let got = f64::from(got);
    if got == expected || (got.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    match (got - expected).abs() {
        difference if difference.is_nan() => f64::INFINITY,
        difference => difference,
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [i0, i1, i2, i3] = self.place;
        write!(
            f,
            "index {} = [{i0},{i1},{i2},{i3}]: device {:?} (0x{:08x}), expected {:?}, {:.2} ulp",
            self.index,
            self.got,
            self.got.to_bits(),
            self.expected,
            self.ulp
        )
    }
}

impl Exact {
    /// Measures a result of a type and a shape.
    #[must_use]
    pub fn measure(
        (dtype, ne): (DType, [usize; 4]),
        against: Against,
        expected: &[f64],
        values: &[f32],
    ) -> Self {
        let mut exact = Self {
            against,
            elements: values.len(),
            differ: 0,
            worst: None,
            furthest: None,
        };
        for (index, (&expected, &got)) in expected.iter().zip(values).enumerate() {
            let element = Element {
                index,
                place: place(index, ne),
                got,
                expected,
                ulp: distance(got, expected) / last_place(dtype, expected),
            };
            exact.differ += usize::from(!element.has_equal_bits());
            keep_larger(&mut exact.worst, element, Element::difference);
            keep_larger(&mut exact.furthest, element, |element| element.ulp);
        }
        exact
    }

    /// Holds the result to what is asked for.
    ///
    /// # Errors
    /// Says how many elements differ, and which most.
    pub fn check(&self, asked: Exactness) -> Result<(), String> {
        let furthest = (self.furthest.as_ref()).map_or_else(String::new, Element::to_string);
        match asked {
            Exactness::Within(0) if self.differ > 0 => Err(format!(
                "{} of {} elements differ in bits from the {}; furthest: {furthest}",
                self.differ, self.elements, self.against
            )),
            Exactness::Within(ulp) if ulp > 0 && self.is_beyond(ulp) => Err(format!(
                "more than {ulp} ulp from the {}; furthest: {furthest}",
                self.against
            )),
            _ => Ok(()),
        }
    }

    fn is_beyond(&self, ulp: u32) -> bool {
        let furthest = self.furthest.map_or(0.0, |element| element.ulp);
        furthest > f64::from(ulp)
    }
}

fn keep_larger(kept: &mut Option<Element>, new: Element, size: impl Fn(&Element) -> f64) {
    if kept.as_ref().is_none_or(|kept| size(&new) > size(kept)) {
        *kept = Some(new);
    }
}

fn place(index: usize, ne: [usize; 4]) -> [usize; 4] {
    let mut rest = index;
    ne.map(|len| {
        let at = rest % len.max(1);
        rest /= len.max(1);
        at
    })
}

/// The unit of the last place of a type at a value. Types without one of their own are read as F32.
fn last_place(dtype: DType, value: f64) -> f64 {
    let (digits, smallest_exponent) = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => return 1.0,
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        _ => (23, -126),
    };
    let exponent = match value.abs() {
        finite if finite.is_finite() && finite > 0.0 => exponent_of(finite),
        _ => smallest_exponent,
    };
    2.0_f64.powi(exponent.max(smallest_exponent) - digits)
}

/// The exponent of a positive normal number, exactly: a logarithm would round up just below a power of two.
fn exponent_of(value: f64) -> i32 {
    (value.to_bits() >> 52) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: [usize; 4] = [2, 3, 1, 1];

    fn measure(expected: &[f64], values: &[f32]) -> Exact {
        Exact::measure((DType::F32, ROW), Against::Reference, expected, values)
    }

    #[test]
    fn the_worst_element_has_a_place_in_each_dimension() {
        let exact = measure(
            &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
            &[0.0, 1.0, 2.0, 2.5, 4.0, 5.0],
        );
        let worst = exact.worst.expect("six elements");
        assert_eq!((worst.index, worst.place), (3, [1, 1, 0, 0]));
        assert_eq!(exact.differ, 1);
        assert_eq!(
            worst.to_string(),
            "index 3 = [1,1,0,0]: device 2.5 (0x40200000), expected 3.0, 2097152.00 ulp"
        );
    }

    /// A large value may differ most and a small one be the most ulp away.
    #[test]
    fn distances_are_in_units_of_the_expected_value() {
        let next = |value: f32| f32::from_bits(value.to_bits() + 1);
        let exact = measure(&[1000.0, 0.001], &[next(1000.0), next(next(0.001))]);
        assert_eq!(exact.worst.map(|at| at.index), Some(0));
        let furthest = exact.furthest.expect("two elements");
        assert_eq!(furthest.index, 1);
        // 0.001 itself is not a value of F32.
        assert!((1.5..2.5).contains(&furthest.ulp), "{furthest}");
        let half = Exact::measure(
            (DType::F16, ROW),
            Against::Reference,
            &[1.0],
            &[1.0 + 1.0 / 1024.0],
        );
        assert_eq!(half.furthest.map(|at| at.ulp), Some(1.0));
        let tiny = measure(&[0.0], &[f32::from_bits(3)]);
        assert_eq!(tiny.furthest.map(|at| at.ulp), Some(3.0));
    }

    #[test]
    fn equal_bits_are_demanded_by_zero_and_closeness_by_more() {
        let rounded = measure(&[0.1], &[0.1]);
        assert!(rounded.check(Exactness::Within(0)).is_ok());
        let zeros = measure(&[0.0], &[-0.0]);
        assert!(zeros.check(Exactness::Within(0)).is_err());
        assert!(zeros.check(Exactness::Within(1)).is_ok());
        let off = measure(&[1.0], &[1.0 + 2.0 * f32::EPSILON]);
        assert!(off.check(Exactness::Report).is_ok());
        assert!(off.check(Exactness::Within(2)).is_ok());
        let reason = off.check(Exactness::Within(1)).expect_err("2 ulp");
        assert!(
            reason.contains("index 0") && reason.contains("2.00 ulp"),
            "{reason}"
        );
    }

    #[test]
    fn nan_and_infinities_are_equal_to_themselves_only() {
        let same = measure(&[f64::NAN, f64::INFINITY], &[f32::NAN, f32::INFINITY]);
        assert_eq!(
            (same.differ, same.furthest.map(|at| at.ulp)),
            (0, Some(0.0))
        );
        for (expected, got) in [(f64::NAN, 1.0), (1.0, f32::NAN), (1.0, f32::INFINITY)] {
            let exact = measure(&[expected], &[got]);
            assert_eq!(exact.furthest.map(|at| at.ulp), Some(f64::INFINITY));
            assert!(exact.check(Exactness::Within(u32::MAX)).is_err());
        }
    }
}
