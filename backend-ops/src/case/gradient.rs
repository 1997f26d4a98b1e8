//! How gradients of a case are checked.

/// What the gradient check of a case is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// The largest error of an element of a gradient, relative to the larger of it and the root mean square of its tensor.
    pub tolerance: f64,
}

impl Default for Gradient {
    /// 3e-5 is 250 units of f32: what chains of some ten operations and sums of some hundred terms that cancel in part leave.
    fn default() -> Self {
        Self { tolerance: 3e-5 }
    }
}
