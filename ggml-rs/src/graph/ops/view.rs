//! Other looks at the same memory. A view keeps the buffer of the tensor it is based on.

use ggml_sys as sys;

use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::{IntoShape, Shape};

impl<'g> Tensor<'g> {
    /// Exchanges the first two dimensions.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) for a quantized tensor: its blocks run along `ne[0]` and cannot be cut.
    #[doc(alias = "ggml_transpose")]
    #[track_caller]
    pub fn transpose(self) -> Result<Self> {
        let at = here();
        check_keeps_blocks("transpose", self.layout(), 1).at(at)?;
        // SAFETY: the tensor is alive; ggml_transpose asserts nothing.
        self.make("transpose", |context| unsafe {
            sys::ggml_transpose(context, self.as_ptr())
        })
    }

    /// Reorders the dimensions: dimension `i` becomes dimension `axes[i]` of the result.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `axes` holds 0 to 3 once each; [`Error::Layout`](crate::Error::Layout) for a quantized tensor whose
    /// dimension 0 would move.
    #[doc(alias = "ggml_permute")]
    #[track_caller]
    pub fn permute(self, axes: [usize; 4]) -> Result<Self> {
        let at = here();
        check_permute(self.layout(), axes).at(at)?;
        let [a0, a1, a2, a3] = axes.map(|axis| axis as i32);
        // SAFETY: the tensor is alive and the axes are a permutation, as ggml_permute asserts.
        self.make("permute", |context| unsafe {
            sys::ggml_permute(context, self.as_ptr(), a0, a1, a2, a3)
        })
    }

    /// Gives the elements of a contiguous tensor another shape.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless contiguous; [`Error::Shape`](crate::Error::Shape) unless the number of elements stays the same and
    /// rows stay whole blocks.
    #[doc(alias = "ggml_reshape")]
    #[doc(alias = "ggml_reshape_1d")]
    #[doc(alias = "ggml_reshape_2d")]
    #[doc(alias = "ggml_reshape_3d")]
    #[doc(alias = "ggml_reshape_4d")]
    #[track_caller]
    pub fn reshape(self, shape: impl IntoShape) -> Result<Self> {
        let at = here();
        let shape = shape.into_shape()?;
        check_reshape(self.layout(), shape).at(at)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensor is alive, and the check mirrors ggml_reshape_4d's assertions.
        self.make("reshape", |context| unsafe {
            sys::ggml_reshape_4d(context, self.as_ptr(), n0, n1, n2, n3)
        })
    }

    /// A window of this shape, `offset` bytes behind this tensor's first element, with the strides
    /// `nb[1]`, `nb[2]` and `nb[3]` in bytes. Elements of a row are next to each other.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) when the window leaves the memory that this tensor has, or when offset or strides
    /// are not whole elements; [`Error::Shape`](crate::Error::Shape) when rows are not whole blocks.
    #[doc(alias = "ggml_view_1d")]
    #[doc(alias = "ggml_view_2d")]
    #[doc(alias = "ggml_view_3d")]
    #[doc(alias = "ggml_view_4d")]
    #[track_caller]
    pub fn view(self, shape: impl IntoShape, nb: [usize; 3], offset: usize) -> Result<Self> {
        let at = here();
        let shape = shape.into_shape()?;
        let base = self.base();
        // SAFETY: the builder's tensors are alive.
        let (base, from) = unsafe { (Layout::of(base.as_ptr())?, self.ptr().as_ref().view_offs) };
        check_view(self.layout(), base, from, shape, nb, offset).at(at)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensor is alive, and the check is stricter than ggml's: it also bounds the strides.
        self.make("view", |context| unsafe {
            sys::ggml_view_4d(
                context,
                self.as_ptr(),
                n0,
                n1,
                n2,
                n3,
                nb[0],
                nb[1],
                nb[2],
                offset,
            )
        })
    }
}

/// Dimension 0 of a quantized tensor must stay where it is: `moved` is the axis it goes to.
#[inline]
fn check_keeps_blocks(op: &'static str, a: Layout, moved: usize) -> Checked {
    if a.dtype.is_quantized() && moved != 0 {
        let refusal = Refusal {
            op,
            operands: &[("a", a)],
        };
        return Err(refusal
            .layout("the blocks of a quantized tensor run along ne[0], which must stay first"));
    }
    Ok(())
}

/// Mirrors `ggml_permute`.
#[inline]
fn check_permute(a: Layout, axes: [usize; 4]) -> Checked {
    let taken = axes
        .into_iter()
        .filter(|&axis| axis < 4)
        .fold(0, |taken, axis| taken | 1 << axis);
    if taken != 0b1111 {
        let refusal = Refusal {
            op: "permute",
            operands: &[("a", a)],
        };
        return Err(refusal.param(format!("axes {axes:?} are not 0 to 3 once each")));
    }
    check_keeps_blocks("permute", a, axes[0])
}

/// Mirrors `ggml_reshape_4d`.
#[inline]
fn check_reshape(a: Layout, shape: Shape) -> Checked {
    let (contiguous, same) = (a.is_contiguous(), a.elements() == shape.elements());
    if contiguous && same && Shape::fits(a.dtype, shape.ne()) {
        return Ok(());
    }
    let refusal = Refusal {
        op: "reshape",
        operands: &[("a", a)],
    };
    if !contiguous {
        return Err(
            refusal.layout("only a contiguous tensor can be reshaped: call cont() on it first")
        );
    }
    if !same {
        return Err(refusal.shape(format!("{shape} has another number of elements")));
    }
    refusal.check_result(a.dtype, shape.ne())
}

/// Bounds a view of `a`, which begins `from` bytes into `base`.
///
/// ggml asserts that a *contiguous* tensor of the view's shape fits the base, and then takes any strides.
fn check_view(
    a: Layout,
    base: Layout,
    from: usize,
    shape: Shape,
    nb: [usize; 3],
    offset: usize,
) -> Checked {
    let refusal = Refusal {
        op: "view",
        operands: &[("a", a)],
    };
    let describe = format!("a view of {shape} with strides {nb:?} at byte {offset}");
    refusal.check_result(a.dtype, shape.ne())?;
    let element = a.dtype.block_bytes();
    if nb
        .iter()
        .chain([&offset])
        .any(|bytes| !bytes.is_multiple_of(element))
    {
        return Err(refusal.layout(format!("{describe}: not whole elements of {element} bytes")));
    }
    let view = Layout {
        dtype: a.dtype,
        ne: shape.ne(),
        nb: [element, nb[0], nb[1], nb[2]],
    };
    let start = from.checked_add(offset);
    let ends = [view.extent(), shape.bytes(a.dtype).ok()].map(|bytes| start?.checked_add(bytes?));
    let available = base.extent().unwrap_or(0);
    if ends.iter().any(|end| end.is_none_or(|end| end > available)) {
        return Err(refusal.layout(format!("{describe}: leaves the tensor's {available} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn quantized_tensors_are_not_transposed() {
        let a = layout(DType::Q8_0, &[64, 32]);
        assert!(matches!(
            check_keeps_blocks("transpose", a, 1),
            Err(Refused::Layout(_))
        ));
        assert!(matches!(
            check_permute(a, [1, 0, 2, 3]),
            Err(Refused::Layout(_))
        ));
        check_permute(a, [0, 2, 1, 3]).unwrap();
        check_permute(layout(DType::F32, &[64, 32]), [1, 0, 2, 3]).unwrap();
    }

    #[test]
    fn axes_are_a_permutation() {
        let a = layout(DType::F32, &[2, 3]);
        for axes in [[0, 0, 1, 2], [0, 1, 2, 4], [3, 3, 3, 3]] {
            assert!(matches!(check_permute(a, axes), Err(Refused::Param(_))));
        }
    }

    #[test]
    fn reshapes_keep_elements_and_blocks() {
        let shape = |dims: &[usize]| Shape::new(dims).unwrap();
        check_reshape(layout(DType::F32, &[6, 2]), shape(&[3, 4])).unwrap();
        assert!(matches!(
            check_reshape(layout(DType::F32, &[6, 2]), shape(&[5, 2])),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_reshape(layout(DType::Q8_0, &[64]), shape(&[16, 4])),
            Err(Refused::Shape(_))
        ));
        let a = transposed(layout(DType::F32, &[6, 2]));
        assert!(matches!(
            check_reshape(a, shape(&[12])),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn views_stay_inside() {
        let a = layout(DType::F32, &[4, 8]);
        let check =
            |dims: &[usize], nb, offset| check_view(a, a, 0, Shape::new(dims).unwrap(), nb, offset);
        check(&[4, 8], [16, 128, 128], 0).unwrap();
        check(&[2, 4], [32, 128, 128], 8).unwrap();
        // One row too many, an offset too large, strides that overflow, half an element.
        for (dims, nb, offset) in [
            (&[4, 9][..], [16, 144, 144], 0),
            (&[4, 8], [16, 128, 128], 4),
            (&[2, 4], [usize::MAX & !3, 0, 0], 0),
            (&[2, 4], [16, 64, 64], usize::MAX & !3),
            (&[2, 4], [18, 64, 64], 0),
            (&[2, 4], [16, 64, 64], 2),
        ] {
            assert!(
                matches!(check(dims, nb, offset), Err(Refused::Layout(_))),
                "{dims:?} {nb:?} {offset}"
            );
        }
    }

    #[test]
    fn overlapping_views_must_also_fit_contiguously() {
        // ggml asserts on the contiguous size, whatever the strides are.
        let a = layout(DType::F32, &[4]);
        let shape = Shape::new(&[4, 2]).unwrap();
        assert!(matches!(
            check_view(a, a, 0, shape, [0, 0, 0], 0),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn views_of_views_count_from_their_own_start() {
        let base = layout(DType::F32, &[8]);
        let view = layout(DType::F32, &[4]);
        let shape = Shape::new(&[2]).unwrap();
        check_view(view, base, 16, shape, [8, 8, 8], 8).unwrap();
        assert!(check_view(view, base, 16, shape, [8, 8, 8], 12).is_err());
    }
}
