//! How gradients of a case are checked.

use ggml_rs::DType;

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
    /// Of a gradient that is computed from a product's values, with weights of this type. The CPU rounds activations to what it
    /// multiplies the weights with; a worst element is some three times as far away as that rounds.
    #[must_use]
    pub fn of_product(weights: DType) -> Self {
        let rounding = match weights {
            DType::F32 => return Self::default(),
            // 11 bits.
            DType::F16 => 5e-4,
            // 8 bits; quantized weights: numbers of 8 bits, in blocks that share a factor.
            _ => 1e-2,
        };
        Self::default().tolerance(3.0 * rounding)
    }

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
