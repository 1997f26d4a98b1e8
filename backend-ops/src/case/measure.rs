//! What of a result is compared with the reference.

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Every value; NaN on either side fails.
    Values,
    /// Every value; NaN must stand where the reference has NaN, and nowhere else.
    ValuesAndNan,
    /// The values of every row of this length, in any order.
    RowSets(usize),
}

impl Measure {
    /// Whether each element of a result has its own value to be compared with.
    #[must_use]
    pub fn is_in_order(self) -> bool {
        matches!(self, Self::Values | Self::ValuesAndNan)
    }
}
