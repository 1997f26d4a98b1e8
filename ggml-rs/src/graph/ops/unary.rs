//! Functions of one element.

use ggml_sys as sys;

use crate::error::Result;
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl Tensor<'_> {
    /// `max(a, 0)`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed.
    #[doc(alias = "ggml_relu")]
    #[track_caller]
    pub fn relu(self) -> Result<Self> {
        check_unary("relu", self.layout())?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_unary_impl's assertion.
        self.make("relu", |context| unsafe {
            sys::ggml_relu(context, self.as_ptr())
        })
    }
}

/// Mirrors `ggml_unary_impl`.
#[track_caller]
fn check_unary(op: &'static str, a: Layout) -> Result<()> {
    if a.has_contiguous_rows() {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    Err(refusal.layout("rows must be packed: call cont() first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Error;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn rows_must_be_packed() {
        check_unary("relu", layout(DType::F32, &[4, 6])).unwrap();
        assert!(matches!(
            check_unary("relu", transposed(layout(DType::F32, &[4, 6]))),
            Err(Error::Layout(_))
        ));
    }
}
