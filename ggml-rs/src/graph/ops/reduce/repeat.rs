//! From one element to many.

use ggml_sys as sys;

use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::{IntoShape, Shape};

impl Tensor<'_> {
    /// Repeats the tensor until it fills `shape`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies fill it.
    #[doc(alias = "ggml_repeat")]
    #[doc(alias = "ggml_repeat_4d")]
    #[track_caller]
    pub fn repeat(self, shape: impl IntoShape) -> Result<Self> {
        let at = here();
        let shape = shape.into_shape()?;
        check_repeat(self.layout(), shape).at(at)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensor is alive, and the check mirrors ggml_repeat_4d's assertion.
        self.make("repeat", |context| unsafe {
            sys::ggml_repeat_4d(context, self.as_ptr(), n0, n1, n2, n3)
        })
    }
}

/// Mirrors `ggml_repeat_4d`.
fn check_repeat(a: Layout, shape: Shape) -> Checked {
    let refusal = Refusal {
        op: "repeat",
        operands: &[("a", a)],
    };
    if !a.can_repeat_to(shape.ne()) {
        return Err(refusal.shape(format!(
            "every dimension of {shape} must be a multiple of a's"
        )));
    }
    refusal.check_result(a.dtype, shape.ne())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn repeats_are_whole_and_bounded() {
        let row = layout(DType::F32, &[4]);
        check_repeat(row, Shape::new(&[8, 3]).unwrap()).unwrap();
        assert!(matches!(
            check_repeat(row, Shape::new(&[6]).unwrap()),
            Err(Refused::Shape(_))
        ));
        let huge = Shape::new(&[1 << 40, 1 << 20]).unwrap();
        assert!(matches!(
            check_repeat(layout(DType::F64, &[4]), huge),
            Err(Refused::Shape(_))
        ));
    }
}
