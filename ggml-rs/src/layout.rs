//! How a tensor lies in memory: the facts that ggml's assertions are about, as plain values.
//!
//! Every check of this crate works on [`Layout`]s, so that it can be tested without ggml.

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Checked, Error, Operand, Placed, Refused, Result, Why, here};
use crate::shape::Shape;

/// Data type, dimensions and strides in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub dtype: DType,
    pub ne: [usize; 4],
    pub nb: [usize; 4],
}

impl Layout {
    /// The layout ggml gives a new tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] when the shape does not fit the type's blocks or overflows.
    #[track_caller]
    pub fn contiguous(dtype: DType, shape: Shape) -> Result<Self> {
        let at = here();
        Self::checked_contiguous(dtype, shape).at(at)
    }

    /// As [`Layout::contiguous`].
    pub fn checked_contiguous(dtype: DType, shape: Shape) -> Checked<Self> {
        // Bounds every product below.
        shape.checked_bytes(dtype)?;
        let ne = shape.ne();
        let row = dtype.checked_row_bytes(ne[0])?;
        let nb = [dtype.block_bytes(), row, row * ne[1], row * ne[1] * ne[2]];
        Ok(Self { dtype, ne, nb })
    }

    /// The layout of a tensor that ggml made.
    ///
    /// # Safety
    /// `tensor` must point to a live tensor.
    pub unsafe fn of(tensor: *const sys::ggml_tensor) -> Result<Self> {
        // SAFETY: the caller vouches for the tensor.
        let tensor = unsafe { &*tensor };
        Ok(Self::with_type(known_type(tensor)?, tensor))
    }

    /// The layout of a tensor whose type was found out before.
    #[inline]
    pub fn with_type(dtype: DType, tensor: &sys::ggml_tensor) -> Self {
        let [n0, n1, n2, n3] = tensor.ne;
        Self {
            dtype,
            ne: [n0 as usize, n1 as usize, n2 as usize, n3 as usize],
            nb: tensor.nb,
        }
    }

    /// The number of elements. Layouts come from checked shapes, so the product cannot overflow.
    #[inline]
    pub fn elements(&self) -> usize {
        self.ne.iter().product()
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        Shape::from_checked(self.ne)
    }

    /// Bytes from the first element to the end of the last: `ggml_nbytes`.
    pub fn extent(&self) -> Option<usize> {
        let row = self.nb[0].checked_mul(self.ne[0] / self.dtype.block_len());
        let row = if self.dtype.is_quantized() {
            row?
        } else {
            self.nb[0]
                .checked_mul(self.ne[0] - 1)?
                .checked_add(self.dtype.block_bytes())?
        };
        (1..4).try_fold(row, |sum, i| {
            self.nb[i].checked_mul(self.ne[i] - 1)?.checked_add(sum)
        })
    }

    /// `ggml_is_contiguous`: elements lie one after the other (strides of dimensions of 1 do not matter).
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut next = self.dtype.block_bytes();
        if self.ne[0] != self.dtype.block_len() && self.nb[0] != next {
            return false;
        }
        next *= self.ne[0] / self.dtype.block_len();
        for i in 1..4 {
            if self.ne[i] != 1 {
                if self.nb[i] != next {
                    return false;
                }
                next *= self.ne[i];
            }
        }
        true
    }

    /// Contiguous by every stride, those of dimensions of 1 included: what a kernel needs that steps by a stride and not by
    /// a dimension.
    pub fn is_packed(&self) -> bool {
        let mut next = self.dtype.block_bytes();
        let mut len = self.ne[0] / self.dtype.block_len();
        self.nb[0] == next
            && (1..4).all(|i| {
                next *= len;
                len = self.ne[i];
                self.nb[i] == next
            })
    }

    /// Blocks of a row lie one after the other, by stride alone. Stricter than `ggml_is_contiguous_rows`,
    /// which lets rows of one block pass with any stride while the kernels assert on the stride.
    #[inline]
    pub fn has_packed_rows(&self) -> bool {
        self.nb[0] == self.dtype.block_bytes()
    }

    /// `ggml_is_contiguous_rows`.
    #[inline]
    pub fn has_contiguous_rows(&self) -> bool {
        self.ne[0] == self.dtype.block_len() || self.has_packed_rows()
    }

    /// `ggml_is_contiguous_1`: rows at any distance, all of them at the same one.
    #[inline]
    pub fn is_contiguous_1(&self) -> bool {
        let mut next = self.nb[1].saturating_mul(self.ne[1]);
        self.has_contiguous_rows()
            && (2..4).all(|i| {
                let follows = self.ne[i] == 1 || self.nb[i] == next;
                next = next.saturating_mul(self.ne[i]);
                follows
            })
    }

    /// `ggml_is_padded_1d`: packed rows at any distance, higher dimensions packed.
    #[inline]
    pub fn is_padded_1d(&self) -> bool {
        self.has_packed_rows()
            && self.nb[2] == self.nb[1] * self.ne[1]
            && self.nb[3] == self.nb[2] * self.ne[2]
    }

    /// `ggml_is_transposed`.
    #[inline]
    pub fn is_transposed(&self) -> bool {
        self.nb[0] > self.nb[1]
    }

    /// `ggml_can_repeat(self, to)`: whole copies of this shape fill the other.
    #[inline]
    pub fn can_repeat_to(&self, to: [usize; 4]) -> bool {
        // Most operands have the same shape, and a division takes longest of all here.
        self.ne == to || self.ne.iter().zip(to).all(|(&n, to)| to.is_multiple_of(n))
    }

    /// Whether two elements may share bytes: true unless, taken by growing stride, each dimension steps
    /// over all of the smaller ones.
    pub fn may_overlap_itself(&self) -> bool {
        let blocks = [
            self.ne[0] / self.dtype.block_len(),
            self.ne[1],
            self.ne[2],
            self.ne[3],
        ];
        let mut dims: Vec<_> = self
            .nb
            .into_iter()
            .zip(blocks)
            .filter(|&(_, n)| n > 1)
            .collect();
        dims.sort_unstable();
        let mut reach = self.dtype.block_bytes();
        dims.into_iter().any(|(step, n)| {
            let overlaps = step < reach;
            reach = step.saturating_mul(n);
            overlaps
        })
    }

    /// This layout as an error shows it.
    pub fn operand(&self, role: &'static str) -> Operand {
        Operand {
            role,
            dtype: self.dtype,
            ne: self.ne,
            nb: self.nb,
            contiguous: self.is_contiguous(),
        }
    }
}

/// The data type of a tensor that ggml made.
///
/// # Errors
/// [`Error::Internal`] for one that this crate does not know.
#[inline]
pub(crate) fn known_type(tensor: &sys::ggml_tensor) -> Result<DType> {
    match DType::from_raw(tensor.type_) {
        Some(dtype) => Ok(dtype),
        None => Err(unknown_type(tensor.type_)),
    }
}

#[cold]
fn unknown_type(raw: sys::ggml_type) -> Error {
    Error::Internal {
        step: "read a tensor's type",
        message: format!("type {raw} is unknown"),
    }
}

/// Builds the errors of one op, with its operands. Where an op is common, one is made only once something is wrong: layouts are
/// large to copy.
pub(crate) struct Refusal<'a> {
    pub op: &'static str,
    pub operands: &'a [(&'static str, Layout)],
}

impl Refusal<'_> {
    #[cold]
    fn because(&self, detail: impl Into<String>) -> Box<Why> {
        let operands = self
            .operands
            .iter()
            .map(|(role, layout)| layout.operand(role))
            .collect();
        Box::new(Why {
            op: self.op,
            detail: detail.into(),
            operands,
        })
    }

    pub fn shape(&self, detail: impl Into<String>) -> Refused {
        Refused::Shape(self.because(detail))
    }

    pub fn dtype(&self, detail: impl Into<String>) -> Refused {
        Refused::DType(self.because(detail))
    }

    pub fn layout(&self, detail: impl Into<String>) -> Refused {
        Refused::Layout(self.because(detail))
    }

    pub fn param(&self, detail: impl Into<String>) -> Refused {
        Refused::Param(self.because(detail))
    }

    /// Checks that ggml can hold a result of this type and shape.
    ///
    /// # Errors
    /// [`Error::Shape`] when it overflows or its rows are not whole blocks.
    #[inline]
    pub fn check_result(&self, dtype: DType, ne: [usize; 4]) -> Checked {
        if Shape::fits(dtype, ne) {
            return Ok(());
        }
        self.refuse_result(dtype, ne)
    }

    #[cold]
    fn refuse_result(&self, dtype: DType, ne: [usize; 4]) -> Checked {
        match Shape::checked(&ne).and_then(|shape| shape.checked_bytes(dtype)) {
            Ok(_) => Ok(()),
            Err(why) => Err(self.shape(format!("the result: {}", why.detail()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dtype: DType, dims: &[usize]) -> Layout {
        Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
    }

    fn transposed(mut layout: Layout) -> Layout {
        layout.ne.swap(0, 1);
        layout.nb.swap(0, 1);
        layout
    }

    #[test]
    fn a_new_tensor_is_contiguous() {
        let q8 = layout(DType::Q8_0, &[64, 3, 2]);
        assert_eq!(q8.nb, [34, 68, 204, 408]);
        assert!(q8.is_contiguous() && q8.is_padded_1d() && q8.has_packed_rows());
        assert_eq!(q8.extent(), Some(408));
    }

    #[test]
    fn transposing_changes_strides_but_not_the_extent() {
        let t = transposed(layout(DType::F32, &[5, 3]));
        assert!(t.is_transposed() && !t.is_contiguous() && !t.has_packed_rows());
        assert_eq!(t.extent(), Some(60));
        assert!(transposed(layout(DType::F32, &[1, 3])).is_contiguous());
    }

    #[test]
    fn overlap_is_seen_from_strides() {
        let plain = layout(DType::F32, &[4, 3]);
        assert!(!plain.may_overlap_itself() && !transposed(plain).may_overlap_itself());
        assert!(
            Layout {
                nb: [4, 8, 48, 48],
                ..plain
            }
            .may_overlap_itself()
        );
        assert!(
            Layout {
                nb: [4, 0, 48, 48],
                ..plain
            }
            .may_overlap_itself()
        );
        // A dimension of 1 never moves.
        assert!(
            !Layout {
                nb: [4, 16, 0, 0],
                ..plain
            }
            .may_overlap_itself()
        );
    }

    #[test]
    fn rows_at_one_distance_may_have_gaps() {
        let gaps = |nb| Layout {
            nb,
            ..layout(DType::F32, &[4, 3, 2])
        };
        assert!(gaps([4, 32, 96, 192]).is_contiguous_1());
        assert!(!gaps([4, 32, 128, 256]).is_contiguous_1());
        assert!(!gaps([8, 32, 96, 192]).is_contiguous_1());
        // Contiguous, but a kernel that steps from row to row by nb[1] leaves the tensor.
        let around_one = Layout {
            nb: [4, 96, 16, 32],
            ..layout(DType::F32, &[4, 1, 2])
        };
        assert!(around_one.is_contiguous() && !around_one.is_contiguous_1());
    }

    #[test]
    fn repeats_are_whole_copies() {
        let row = layout(DType::F32, &[4, 1]);
        assert!(row.can_repeat_to([8, 5, 1, 1]));
        assert!(!row.can_repeat_to([6, 5, 1, 1]));
    }

    #[test]
    fn extents_that_overflow_are_none() {
        let wide = Layout {
            nb: [4, usize::MAX / 2, 0, 0],
            ..layout(DType::F32, &[2, 4])
        };
        assert_eq!(wide.extent(), None);
    }
}
