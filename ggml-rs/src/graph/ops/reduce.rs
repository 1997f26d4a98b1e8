//! From many elements to one, and from one to many.

use ggml_sys as sys;

use crate::error::Result;
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::{IntoShape, Shape};

impl Tensor<'_> {
    /// The sum of all elements: a tensor of one element, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for a quantized type; [`Error::Layout`](crate::Error::Layout) unless rows are packed (ggml's kernels would
    /// add up other elements).
    #[doc(alias = "ggml_sum")]
    #[track_caller]
    pub fn sum(self) -> Result<Self> {
        check_sum(self.layout())?;
        // SAFETY: the tensor is alive; ggml_sum asserts nothing, and one element of a scalar type is valid.
        self.make("sum", |context| unsafe {
            sys::ggml_sum(context, self.as_ptr())
        })
    }

    /// Repeats the tensor until it fills `shape`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies fill it.
    #[doc(alias = "ggml_repeat_4d")]
    #[track_caller]
    pub fn repeat(self, shape: impl IntoShape) -> Result<Self> {
        let shape = shape.into_shape()?;
        check_repeat(self.layout(), shape)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensor is alive, and the check mirrors ggml_repeat_4d's assertion.
        self.make("repeat", |context| unsafe {
            sys::ggml_repeat_4d(context, self.as_ptr(), n0, n1, n2, n3)
        })
    }
}

#[track_caller]
fn check_sum(a: Layout) -> Result<()> {
    let refusal = Refusal {
        op: "sum",
        operands: &[("a", a)],
    };
    if a.dtype.is_quantized() {
        return Err(refusal.dtype("one element of a quantized type does not exist"));
    }
    if !a.has_packed_rows() {
        return Err(refusal.layout("rows must be packed: call cont() first"));
    }
    Ok(())
}

/// Mirrors `ggml_repeat_4d`.
#[track_caller]
fn check_repeat(a: Layout, shape: Shape) -> Result<()> {
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
    use crate::error::Error;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn sums_want_packed_scalars() {
        check_sum(layout(DType::F32, &[4, 6])).unwrap();
        assert!(matches!(
            check_sum(layout(DType::Q8_0, &[32])),
            Err(Error::DType(_))
        ));
        assert!(matches!(
            check_sum(transposed(layout(DType::F32, &[4, 6]))),
            Err(Error::Layout(_))
        ));
    }

    #[test]
    fn repeats_are_whole_and_bounded() {
        let row = layout(DType::F32, &[4]);
        check_repeat(row, Shape::new(&[8, 3]).unwrap()).unwrap();
        assert!(matches!(
            check_repeat(row, Shape::new(&[6]).unwrap()),
            Err(Error::Shape(_))
        ));
        let huge = Shape::new(&[1 << 40, 1 << 20]).unwrap();
        assert!(matches!(
            check_repeat(layout(DType::F64, &[4]), huge),
            Err(Error::Shape(_))
        ));
    }
}
