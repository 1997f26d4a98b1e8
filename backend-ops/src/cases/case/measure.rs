//! What of a result is compared with the reference.

use std::collections::HashSet;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Every value; NaN on either side fails.
    Values,
    /// Every value; NaN must stand where the reference has NaN, and nowhere else.
    ValuesAndNan,
    /// The values of every row of this length, in any order.
    RowSets(usize),
    /// Ids of elements of the first operand's rows: the elements that they name, so that equal ones may stand for each other.
    Ranks(Ranks),
}

/// How ids of elements are compared: by the rank of what they name among its row's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Elements of a row of the first operand.
    pub row: usize,
    /// Ids for each row.
    pub ids: usize,
    /// Whether their order counts.
    pub ordered: bool,
}

impl Ranks {
    /// A rank for each expected id and for each one got: that of its element among all that are named in its row, in the order
    /// of [`f32::total_cmp`]. An id that names no element, or one that was named before, has -1, which no reference has.
    pub(crate) fn of(self, values: &[f32], expected: &[f64], got: &[f32]) -> (Vec<f64>, Vec<f32>) {
        let rows = values.chunks(self.row);
        let ids = expected.chunks(self.ids).zip(got.chunks(self.ids));
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (row, (expected, got)) in rows.zip(ids) {
            let expected = self.named(row, expected.iter().copied());
            let got = self.named(row, got.iter().copied().map(f64::from));
            let mut known: Vec<i32> = expected.iter().chain(&got).flatten().copied().collect();
            known.sort_unstable();
            known.dedup();
            let rank = |key: &Option<i32>| match key {
                Some(key) => known.partition_point(|other| other < key) as f32,
                None => -1.0,
            };
            left.extend(expected.iter().map(rank).map(f64::from));
            right.extend(got.iter().map(rank));
        }
        (left, right)
    }

    /// What ids name, as numbers in the order of their elements.
    fn named(self, row: &[f32], ids: impl Iterator<Item = f64>) -> Vec<Option<i32>> {
        let mut before = HashSet::new();
        let mut named: Vec<Option<i32>> = ids
            .map(|id| {
                let whole = id >= 0.0 && id.fract() == 0.0 && before.insert(id as usize);
                row.get(id as usize).filter(|_| whole).copied().map(key)
            })
            .collect();
        if !self.ordered {
            named.sort_unstable();
        }
        named
    }
}

/// A number in the order of [`f32::total_cmp`].
fn key(value: f32) -> i32 {
    let bits = value.to_bits() as i32;
    // All bits but the sign, of negative values.
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

impl Measure {
    /// Whether each element of a result has its own value to be compared with.
    #[must_use]
    pub fn is_in_order(self) -> bool {
        matches!(self, Self::Values | Self::ValuesAndNan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_elements_stand_for_each_other_once() {
        let values = [3.0, f32::NAN, 3.0, -0.0, 0.0];
        let agree = |ordered, expected: &[f64], got: &[f32]| {
            let ranks = Ranks {
                row: 5,
                ids: got.len(),
                ordered,
            };
            let (expected, got) = ranks.of(&values, expected, got);
            expected.iter().zip(got).all(|(a, b)| *a == f64::from(b))
        };
        assert!(agree(
            true,
            &[3.0, 4.0, 0.0, 2.0, 1.0],
            &[3.0, 4.0, 2.0, 0.0, 1.0]
        ));
        assert!(!agree(true, &[3.0, 4.0], &[4.0, 3.0]));
        assert!(agree(false, &[3.0, 4.0], &[4.0, 3.0]));
        assert!(agree(false, &[1.0, 0.0], &[2.0, 1.0]));
        for wrong in [
            [0.0, 0.0],
            [0.0, 5.0],
            [0.0, -1.0],
            [0.0, 1.5],
            [0.0, f32::NAN],
            [0.0, 3.0],
        ] {
            assert!(!agree(false, &[0.0, 2.0], &wrong), "{wrong:?}");
        }
    }

    #[test]
    fn keys_are_in_order() {
        let ordered = [f32::NEG_INFINITY, -1.0, -0.0, 0.0, 1e-40, 1.0, f32::NAN];
        assert!(ordered.map(key).is_sorted());
        assert_eq!(key(-f32::NAN).min(key(f32::NEG_INFINITY)), key(-f32::NAN));
    }
}
