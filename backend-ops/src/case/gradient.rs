//! How gradients of a case are checked.

/// What the gradient check of a case is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// The largest error of an element of a gradient that the device computes, relative to the larger of it and the root mean
    /// square of its operand's gradient.
    pub tolerance: f64,
    /// What an error is relative to at the least: a gradient of which most cancels is no larger than the rounding of what cancels.
    pub floor: f64,
    /// Where the trained operands' values are drawn from, where the case's own values are no place for a gradient: beyond what
    /// f32 can hold once it is an exponential, or flat.
    pub range: Option<[f32; 2]>,
}

impl Gradient {
    /// The same with another tolerance; the case says what rounds.
    #[must_use]
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// The same with errors relative to this at the least; the case says what cancels.
    #[must_use]
    pub fn floor(self, floor: f64) -> Self {
        Self { floor, ..self }
    }

    /// The same with trained operands uniform in `[low, high)`.
    #[must_use]
    pub fn within(self, low: f32, high: f32) -> Self {
        Self {
            range: Some([low, high]),
            ..self
        }
    }
}

impl Default for Gradient {
    /// 3e-5 is 250 units of f32: what chains of some ten operations and sums of some hundred terms that cancel in part leave.
    fn default() -> Self {
        Self {
            tolerance: 3e-5,
            floor: 0.0,
            range: None,
        }
    }
}
