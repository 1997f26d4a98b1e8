//! Whether numbers are right: comparison, and references in double precision.

mod compare;
mod evaluate;
mod gradients;
pub mod reference;

pub use compare::{Comparison, Difference, Mismatch, compare, nmse};
#[doc(hidden)]
pub use evaluate::Site;
pub use evaluate::{Interpreter, evaluate};
pub use gradients::{
    Data, Deviation, GradientOptions, GradientReport, Inputs, Subject, differentiable_ops,
    gradients, gradients_of,
};
