//! Adding to, or replacing, a part of a tensor.

use ggml_sys as sys;

use super::inplace::{self, Reads};
use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// One of ggml's functions of two operands and a window.
type Make = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    usize,
    usize,
    usize,
    usize,
) -> *mut sys::ggml_tensor;

impl<'g> Tensor<'g> {
    /// `a` with `b` added to a window of it: that of the shape of `b`, `offset` bytes behind the first element, with the
    /// strides `nb[1]`, `nb[2]` and `nb[3]` in bytes, as [`Tensor::view`] would cut it.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless both are F32; [`Error::Layout`](crate::Error::Layout) unless `a` is contiguous, or when
    /// the window leaves it, overlaps itself, or reaches beyond 2^31 - 1 bytes.
    #[doc(alias = "ggml_acc")]
    #[track_caller]
    pub fn acc(self, b: Tensor<'g>, nb: [usize; 3], offset: usize) -> Result<Self> {
        let at = here();
        check_acc("acc", self.layout(), b.layout(), Window { nb, offset }).at(at)?;
        self.windowed("acc", b, Window { nb, offset }, sys::ggml_acc)
    }

    /// [`Tensor::acc`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::acc`]; [`Error::Layout`](crate::Error::Layout) where `b` lies in the memory of `a`.
    #[doc(alias = "ggml_acc_inplace")]
    #[track_caller]
    pub fn acc_inplace(self, b: Tensor<'g>, nb: [usize; 3], offset: usize) -> Result<Self> {
        let at = here();
        const OP: &str = "acc_inplace";
        check_acc(OP, self.layout(), b.layout(), Window { nb, offset }).at(at)?;
        inplace::check(OP, self, &[("b", b, Reads::Anywhere)]).at(at)?;
        self.windowed(OP, b, Window { nb, offset }, sys::ggml_acc_inplace)
    }

    /// `a` with a window of it replaced by `b`. The window is cut as in [`Tensor::acc`].
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless both are of one type, and not quantized; [`Error::Layout`](crate::Error::Layout) unless `a` is
    /// contiguous, or when the window leaves it, overlaps itself, or reaches beyond 2^30 bytes.
    #[doc(alias = "ggml_set")]
    #[track_caller]
    pub fn set(self, b: Tensor<'g>, nb: [usize; 3], offset: usize) -> Result<Self> {
        let at = here();
        check_set("set", self.layout(), b.layout(), Window { nb, offset }).at(at)?;
        self.windowed("set", b, Window { nb, offset }, sys::ggml_set)
    }

    /// [`Tensor::set`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::set`]; [`Error::Layout`](crate::Error::Layout) where `b` lies in the memory of `a`.
    #[doc(alias = "ggml_set_inplace")]
    #[track_caller]
    pub fn set_inplace(self, b: Tensor<'g>, nb: [usize; 3], offset: usize) -> Result<Self> {
        let at = here();
        const OP: &str = "set_inplace";
        check_set(OP, self.layout(), b.layout(), Window { nb, offset }).at(at)?;
        inplace::check(OP, self, &[("b", b, Reads::Anywhere)]).at(at)?;
        self.windowed(OP, b, Window { nb, offset }, sys::ggml_set_inplace)
    }

    /// [`Tensor::set`] with the strides of `a`.
    ///
    /// # Errors
    /// As [`Tensor::set`].
    #[doc(alias = "ggml_set_1d")]
    #[track_caller]
    pub fn set_1d(self, b: Tensor<'g>, offset: usize) -> Result<Self> {
        let [_, nb @ ..] = self.strides();
        self.set(b, nb, offset)
    }

    /// [`Tensor::set_inplace`] with the strides of `a`.
    ///
    /// # Errors
    /// As [`Tensor::set_inplace`].
    #[doc(alias = "ggml_set_1d_inplace")]
    #[track_caller]
    pub fn set_1d_inplace(self, b: Tensor<'g>, offset: usize) -> Result<Self> {
        let [_, nb @ ..] = self.strides();
        self.set_inplace(b, nb, offset)
    }

    /// [`Tensor::set`] with rows `nb1` bytes apart, and the other strides of `a`.
    ///
    /// # Errors
    /// As [`Tensor::set`].
    #[doc(alias = "ggml_set_2d")]
    #[track_caller]
    pub fn set_2d(self, b: Tensor<'g>, nb1: usize, offset: usize) -> Result<Self> {
        let [_, _, nb2, nb3] = self.strides();
        self.set(b, [nb1, nb2, nb3], offset)
    }

    /// [`Tensor::set_inplace`] with rows `nb1` bytes apart, and the other strides of `a`.
    ///
    /// # Errors
    /// As [`Tensor::set_inplace`].
    #[doc(alias = "ggml_set_2d_inplace")]
    #[track_caller]
    pub fn set_2d_inplace(self, b: Tensor<'g>, nb1: usize, offset: usize) -> Result<Self> {
        let [_, _, nb2, nb3] = self.strides();
        self.set_inplace(b, [nb1, nb2, nb3], offset)
    }

    /// A node of `make`, whose operands and window were checked for it.
    #[track_caller]
    fn windowed(self, op: &'static str, b: Tensor<'g>, window: Window, make: Make) -> Result<Self> {
        let Window { nb, offset } = window;
        // SAFETY: both tensors are alive, and the callers' checks mirror ggml_acc_impl's and ggml_set_impl's assertions.
        self.make(op, |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            make(context, a, b, nb[0], nb[1], nb[2], offset)
        })
    }
}

/// Where `b` lies in `a`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub nb: [usize; 3],
    pub offset: usize,
}

impl Window {
    /// What a node of ACC or SET has stored.
    ///
    /// # Errors
    /// The reason, when one is negative: it did not fit.
    pub fn of(params: &[i32; 16]) -> std::result::Result<Self, String> {
        let read = |index: usize| {
            usize::try_from(params[index]).map_err(|_| "the window is beyond 2^31 - 1".to_owned())
        };
        Ok(Self {
            nb: [read(0)?, read(1)?, read(2)?],
            offset: read(3)?,
        })
    }

    /// Bounds the window that `b` takes in a contiguous `a`.
    ///
    /// ggml asserts on where elements begin, stores numbers as i32, and lets threads share out the rows.
    ///
    /// # Errors
    /// The reason why it does not fit.
    pub fn check(&self, a: &Layout, b: &Layout) -> std::result::Result<(), String> {
        let element = a.dtype.block_bytes();
        let Self { nb, offset } = *self;
        let describe = format!(
            "a window of {} with strides {nb:?} at byte {offset}",
            b.shape()
        );
        let all = || nb.into_iter().chain([offset]);
        if all().any(|bytes| bytes > i32::MAX as usize) {
            return Err(format!("{describe}: ggml stores no number beyond 2^31 - 1"));
        }
        if all().any(|bytes| !bytes.is_multiple_of(element)) {
            return Err(format!("{describe}: not whole elements of {element} bytes"));
        }
        let window = Layout {
            dtype: a.dtype,
            ne: b.ne,
            nb: [element, nb[0], nb[1], nb[2]],
        };
        let end = window.extent().and_then(|bytes| bytes.checked_add(offset));
        let available = a.extent().unwrap_or(0);
        if end.is_none_or(|end| end > available) {
            return Err(format!("{describe}: leaves a's {available} bytes"));
        }
        if window.may_overlap_itself() {
            return Err(format!("{describe}: elements share memory"));
        }
        Ok(())
    }
}

/// Mirrors `ggml_acc_impl`.
fn check_acc(op: &'static str, a: Layout, b: Layout, window: Window) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    if a.dtype != F32 || b.dtype != F32 {
        return Err(refusal.dtype("both must be F32"));
    }
    check_window(&refusal, a, b, window)
}

/// Mirrors `ggml_set_impl`, and the kernels, which take the bits of `b` for values of `a`.
fn check_set(op: &'static str, a: Layout, b: Layout, window: Window) -> Checked {
    const OFFSET_LIMIT: usize = 1 << 30;
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    if a.dtype != b.dtype || a.dtype.is_quantized() {
        return Err(refusal.dtype("both must be of one type, and not quantized"));
    }
    if window.offset >= OFFSET_LIMIT {
        return Err(refusal.layout("the offset must be below 2^30"));
    }
    check_window(&refusal, a, b, window)
}

fn check_window(refusal: &Refusal<'_>, a: Layout, b: Layout, window: Window) -> Checked {
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    window.check(&a, &b).map_err(|why| refusal.layout(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{self, F16, I32};
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    fn at(nb: [usize; 3], offset: usize) -> Window {
        Window { nb, offset }
    }

    #[test]
    fn windows_stay_inside_and_do_not_fold() {
        let (a, b) = (layout(F32, &[8, 6]), layout(F32, &[2, 3]));
        let check = |nb, offset| check_acc("acc", a, b, at(nb, offset));
        check([32, 192, 192], 0).unwrap();
        // The last element is the last of a.
        check([32, 192, 192], 3 * 32 + 6 * 4).unwrap();
        for (nb, offset) in [
            ([32, 192, 192], 3 * 32 + 7 * 4),
            ([32, 192, 192], usize::MAX & !3),
            ([4, 192, 192], 0),
            ([0, 192, 192], 0),
            ([30, 192, 192], 0),
            ([32, 192, 192], 2),
            ([32, 1 << 32, 192], 0),
        ] {
            let refused = check(nb, offset);
            assert!(
                matches!(refused, Err(Refused::Layout(_))),
                "{nb:?} {offset}"
            );
        }
    }

    #[test]
    fn types_and_layouts_are_ggmls() {
        let (a, b) = (layout(F32, &[8, 6]), layout(F32, &[2, 3]));
        let window = at([32, 192, 192], 0);
        for dtype in [F16, I32] {
            let refused = check_acc("acc", a, layout(dtype, &[2, 3]), window);
            assert!(matches!(refused, Err(Refused::DType(_))));
            let refused = check_set("set", a, layout(dtype, &[2, 3]), window);
            assert!(matches!(refused, Err(Refused::DType(_))));
        }
        check_set("set", layout(I32, &[8, 6]), layout(I32, &[2, 3]), window).unwrap();
        let q8 = layout(DType::Q8_0, &[32]);
        let refused = check_set("set", q8, q8, at([34, 34, 34], 0));
        assert!(matches!(refused, Err(Refused::DType(_))));
        let refused = check_acc("acc", transposed(layout(F32, &[6, 8])), b, window);
        assert!(matches!(refused, Err(Refused::Layout(_))));
        let far = check_set(
            "set",
            layout(F32, &[1 << 29]),
            b,
            at([32, 192, 192], 1 << 30),
        );
        assert!(matches!(far, Err(Refused::Layout(_))));
    }
}
