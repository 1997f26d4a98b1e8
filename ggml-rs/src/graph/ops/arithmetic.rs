//! Arithmetic, element by element, with `b` repeated to the shape of `a`.

use ggml_sys as sys;

use crate::error::Result;
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

#[allow(
    clippy::should_implement_trait,
    reason = "ggml's names; operators cannot return errors"
)]
impl<'g> Tensor<'g> {
    /// `a + b`, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_add")]
    #[track_caller]
    pub fn add(self, b: Tensor<'g>) -> Result<Self> {
        check_repeats("add", self.layout(), b.layout())?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_add's assertion.
        self.make("add", |context| unsafe {
            sys::ggml_add(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a - b`, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_sub")]
    #[track_caller]
    pub fn sub(self, b: Tensor<'g>) -> Result<Self> {
        check_repeats("sub", self.layout(), b.layout())?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_sub's assertion.
        self.make("sub", |context| unsafe {
            sys::ggml_sub(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a * b` element by element, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_mul")]
    #[track_caller]
    pub fn mul(self, b: Tensor<'g>) -> Result<Self> {
        check_repeats("mul", self.layout(), b.layout())?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_mul's assertion.
        self.make("mul", |context| unsafe {
            sys::ggml_mul(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a / b` element by element, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_div")]
    #[track_caller]
    pub fn div(self, b: Tensor<'g>) -> Result<Self> {
        check_repeats("div", self.layout(), b.layout())?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_div's assertion.
        self.make("div", |context| unsafe {
            sys::ggml_div(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a * factor`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and `ne[2]`, `ne[3]` follow each other without gaps.
    #[doc(alias = "ggml_scale")]
    #[track_caller]
    pub fn scale(self, factor: f32) -> Result<Self> {
        check_scale(self.layout())?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_scale's assertion.
        self.make("scale", |context| unsafe {
            sys::ggml_scale(context, self.as_ptr(), factor)
        })
    }
}

/// Mirrors `ggml_can_repeat(b, a)`, which all four binary ops assert.
#[track_caller]
fn check_repeats(op: &'static str, a: Layout, b: Layout) -> Result<()> {
    if b.can_repeat_to(a.ne) {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    Err(refusal.shape("every dimension of a must be a multiple of b's"))
}

/// Mirrors `ggml_scale_impl`.
#[track_caller]
fn check_scale(a: Layout) -> Result<()> {
    if a.is_padded_1d() {
        return Ok(());
    }
    let refusal = Refusal {
        op: "scale",
        operands: &[("a", a)],
    };
    Err(refusal.layout("rows must be packed and matrices follow each other: call cont() first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Error;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn b_repeats_into_a_and_not_the_reverse() {
        let (matrix, row) = (layout(DType::F32, &[4, 6]), layout(DType::F32, &[4]));
        check_repeats("add", matrix, row).unwrap();
        let text = check_repeats("div", row, matrix).unwrap_err().to_string();
        assert!(
            text.contains("div(a: f32 [4, 1, 1, 1], b: f32 [4, 6, 1, 1])"),
            "{text}"
        );
    }

    #[test]
    fn scaling_needs_packed_rows() {
        check_scale(layout(DType::F32, &[4, 6])).unwrap();
        assert!(matches!(
            check_scale(transposed(layout(DType::F32, &[4, 6]))),
            Err(Error::Layout(_))
        ));
    }
}
