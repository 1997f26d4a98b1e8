//! Copies: into a new contiguous tensor, or into one that exists.

use ggml_sys as sys;

use super::inplace;
use crate::dtype::DType;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::{IntoShape, Shape};

impl<'g> Tensor<'g> {
    /// A contiguous copy, by another op of ggml's than [`Tensor::cont`].
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) only.
    #[doc(alias = "ggml_dup")]
    #[track_caller]
    pub fn dup(self) -> Result<Self> {
        // SAFETY: the tensor is alive; ggml_dup asserts nothing, and the result is no larger than a tensor of this
        // shape, which exists.
        self.make("dup", |context| unsafe {
            sys::ggml_dup(context, self.as_ptr())
        })
    }

    /// A copy of the tensor to where it is, [in place](crate::graph::inplace): a node that changes nothing.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) where elements share memory.
    #[doc(alias = "ggml_dup_inplace")]
    #[track_caller]
    pub fn dup_inplace(self) -> Result<Self> {
        let at = here();
        inplace::check("dup_inplace", self, &[]).at(at)?;
        // SAFETY: the tensor is alive; ggml_dup_inplace asserts nothing.
        self.make("dup_inplace", |context| unsafe {
            sys::ggml_dup_inplace(context, self.as_ptr())
        })
    }

    /// A contiguous copy of another shape, with the elements in the same order.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless the number of elements stays the same and rows are whole blocks.
    #[doc(alias = "ggml_cont_1d")]
    #[doc(alias = "ggml_cont_2d")]
    #[doc(alias = "ggml_cont_3d")]
    #[doc(alias = "ggml_cont_4d")]
    #[track_caller]
    pub fn cont_reshaped(self, shape: impl IntoShape) -> Result<Self> {
        let at = here();
        let shape = shape.into_shape()?;
        check_cont_reshaped(self.layout(), shape).at(at)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensor is alive, and the check mirrors ggml_cont_4d's assertion.
        self.make("cont_reshaped", |context| unsafe {
            sys::ggml_cont_4d(context, self.as_ptr(), n0, n1, n2, n3)
        })
    }

    /// A contiguous copy.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) only.
    #[doc(alias = "ggml_cont")]
    #[track_caller]
    pub fn cont(self) -> Result<Self> {
        // SAFETY: the tensor is alive; ggml_cont asserts nothing, and the result is no larger than a tensor
        // of this shape, which exists.
        self.make("cont", |context| unsafe {
            sys::ggml_cont(context, self.as_ptr())
        })
    }

    /// A contiguous copy of another type.
    ///
    /// F32 becomes I32 towards zero: the nearest I32 where none is as large, and 0 for NaN. To F16, values from 65520 on become
    /// infinite. To blocks, values whose scale is too large for a half make the block infinite or NaN: `docs/precision.md` has the
    /// limits, and [`quantize`](crate::quantize::quantize) refuses such values.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when rows are not whole blocks of the type.
    #[doc(alias = "ggml_cast")]
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Result<Self> {
        let at = here();
        let refusal = Refusal {
            op: "cast",
            operands: &[("a", self.layout())],
        };
        refusal.check_result(dtype, self.shape().ne()).at(at)?;
        // SAFETY: the tensor is alive; ggml_cast asserts nothing, and the result was checked.
        self.make("cast", |context| unsafe {
            sys::ggml_cast(context, self.as_ptr(), dtype.raw())
        })
    }

    /// Copies this tensor's values into `to`, converting them to its type. The result is a view of `to`.
    ///
    /// The copy happens in the order in which it was written among the graph's other nodes. Into an input, a parameter or a view of
    /// one it always happens; into another tensor only if an output depends on the result.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when the numbers of elements differ; [`Error::Layout`](crate::Error::Layout) when both share memory, or when
    /// elements of `to` share memory with each other.
    #[doc(alias = "ggml_cpy")]
    #[track_caller]
    pub fn cpy(self, to: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_cpy(self.layout(), to.layout(), self.base() == to.base()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_cpy's assertion.
        self.make("cpy", |context| unsafe {
            sys::ggml_cpy(context, self.as_ptr(), to.as_ptr())
        })
    }
}

/// Mirrors `ggml_cont_4d`.
fn check_cont_reshaped(a: Layout, shape: Shape) -> Checked {
    let refusal = Refusal {
        op: "cont_reshaped",
        operands: &[("a", a)],
    };
    if a.elements() != shape.elements() {
        return Err(refusal.shape(format!("{shape} has another number of elements")));
    }
    refusal.check_result(a.dtype, shape.ne())
}

/// Mirrors `ggml_cpy`, and keeps threads from writing what others read or write.
fn check_cpy(a: Layout, to: Layout, same_memory: bool) -> Checked {
    let refusal = Refusal {
        op: "cpy",
        operands: &[("a", a), ("to", to)],
    };
    if a.elements() != to.elements() {
        return Err(refusal.shape("both must have the same number of elements"));
    }
    if same_memory {
        return Err(refusal.layout("both are views of one tensor: call cont() on the source first"));
    }
    if to.may_overlap_itself() {
        return Err(refusal.layout("elements of the destination share memory"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn a_copy_of_another_shape_has_as_many_elements() {
        let shape = |dims: &[usize]| Shape::new(dims).unwrap();
        check_cont_reshaped(layout(DType::F32, &[6, 2]), shape(&[3, 4])).unwrap();
        for (a, dims) in [
            (layout(DType::F32, &[6, 2]), &[13][..]),
            (layout(DType::Q8_0, &[64]), &[16, 4]),
        ] {
            let refused = check_cont_reshaped(a, shape(dims));
            assert!(matches!(refused, Err(Refused::Shape(_))));
        }
    }

    #[test]
    fn copies_need_as_many_elements_and_separate_memory() {
        let (a, to) = (layout(DType::F32, &[4, 2]), layout(DType::F16, &[8]));
        check_cpy(a, to, false).unwrap();
        assert!(matches!(
            check_cpy(a, layout(DType::F16, &[9]), false),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(check_cpy(a, to, true), Err(Refused::Layout(_))));
        let folded = Layout {
            nb: [4, 4, 16, 16],
            ..a
        };
        assert!(matches!(
            check_cpy(a, folded, false),
            Err(Refused::Layout(_))
        ));
    }
}
