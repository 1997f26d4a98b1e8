//! More elements around a tensor, or the same ones elsewhere.

use std::ffi::c_int;

use ggml_sys as sys;

use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl Tensor<'_> {
    /// `a` with `after[i]` zeros behind dimension `i`.
    ///
    /// # Errors
    /// As [`Tensor::pad_ext`].
    #[doc(alias = "ggml_pad")]
    #[track_caller]
    pub fn pad(self, after: [usize; 4]) -> Result<Self> {
        self.padded("pad", [0; 4], after, false)
    }

    /// `a`, and behind dimension `i` its first `after[i]` elements again.
    ///
    /// # Errors
    /// As [`Tensor::pad_ext_circular`].
    #[doc(alias = "ggml_pad_circular")]
    #[track_caller]
    pub fn pad_circular(self, after: [usize; 4]) -> Result<Self> {
        self.padded("pad_circular", [0; 4], after, true)
    }

    /// `a` with `before[i]` zeros before dimension `i` and `after[i]` behind it.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when the result overflows or its rows are not whole blocks; [`Error::Param`](crate::Error::Param) for a
    /// number beyond 2^31 - 1.
    #[doc(alias = "ggml_pad_ext")]
    #[track_caller]
    pub fn pad_ext(self, before: [usize; 4], after: [usize; 4]) -> Result<Self> {
        self.padded("pad_ext", before, after, false)
    }

    /// `a`, continued in both directions as if it were repeated without end: `before[i]` elements before dimension `i`, and
    /// `after[i]` behind it.
    ///
    /// # Errors
    /// As [`Tensor::pad_ext`]; [`Error::Param`](crate::Error::Param) also where `before` is more than `a` has: ggml's kernels go round once.
    #[doc(alias = "ggml_pad_ext_circular")]
    #[track_caller]
    pub fn pad_ext_circular(self, before: [usize; 4], after: [usize; 4]) -> Result<Self> {
        self.padded("pad_ext_circular", before, after, true)
    }

    #[track_caller]
    fn padded(
        self,
        op: &'static str,
        before: [usize; 4],
        after: [usize; 4],
        circular: bool,
    ) -> Result<Self> {
        let at = here();
        check_pad(op, self.layout(), before, after, circular).at(at)?;
        let make = match circular {
            true => sys::ggml_pad_ext_circular,
            false => sys::ggml_pad_ext,
        };
        let ([l0, l1, l2, l3], [r0, r1, r2, r3]) = (before.map(int), after.map(int));
        // SAFETY: the tensor is alive, the numbers fit, and the result was checked.
        self.make(op, |context| unsafe {
            make(context, self.as_ptr(), l0, r0, l1, r1, l2, r2, l3, r3)
        })
    }

    /// Rows with `before` elements in front and `after` behind, mirrored at the first and the last element, which are not
    /// repeated.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless F32; [`Error::Layout`](crate::Error::Layout) unless contiguous; [`Error::Param`](crate::Error::Param) unless both
    /// numbers are below `ne[0]`.
    #[doc(alias = "ggml_pad_reflect_1d")]
    #[track_caller]
    pub fn pad_reflect_1d(self, before: usize, after: usize) -> Result<Self> {
        let at = here();
        check_reflect(self.layout(), before, after).at(at)?;
        let (before, after) = (int(before), int(after));
        // SAFETY: the tensor is alive, and the check mirrors ggml_pad_reflect_1d's assertions.
        self.make("pad_reflect_1d", |context| unsafe {
            sys::ggml_pad_reflect_1d(context, self.as_ptr(), before, after)
        })
    }

    /// The same elements, moved by `shifts[i]` along dimension `i`; what leaves on one side enters on the other.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed; [`Error::Param`](crate::Error::Param) unless each shift is shorter than its dimension;
    /// [`Error::DType`](crate::Error::DType) for a quantized tensor.
    #[doc(alias = "ggml_roll")]
    #[track_caller]
    pub fn roll(self, shifts: [i32; 4]) -> Result<Self> {
        let at = here();
        check_roll(self.layout(), shifts).at(at)?;
        let [s0, s1, s2, s3] = shifts;
        // SAFETY: the tensor is alive, and the check mirrors ggml_roll's assertions.
        self.make("roll", |context| unsafe {
            sys::ggml_roll(context, self.as_ptr(), s0, s1, s2, s3)
        })
    }
}

/// A number that was checked.
fn int(n: usize) -> c_int {
    n as c_int
}

/// ggml checks nothing.
fn check_pad(
    op: &'static str,
    a: Layout,
    before: [usize; 4],
    after: [usize; 4],
    circular: bool,
) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    let mut ne = a.ne;
    for i in 0..4 {
        if before[i].max(after[i]) > i32::MAX as usize {
            return Err(refusal.param(format!("dimension {i} is padded by more than 2^31 - 1")));
        }
        if circular && before[i] > a.ne[i] {
            let detail = format!(
                "dimension {i} is continued by {} elements of {}",
                before[i], a.ne[i]
            );
            return Err(refusal.param(detail));
        }
        // Dimensions are below a quarter of the range.
        ne[i] += before[i] + after[i];
    }
    refusal.check_result(a.dtype, ne)
}

/// Mirrors `ggml_pad_reflect_1d`.
fn check_reflect(a: Layout, before: usize, after: usize) -> Checked {
    let refusal = Refusal {
        op: "pad_reflect_1d",
        operands: &[("a", a)],
    };
    if a.dtype != F32 {
        return Err(refusal.dtype("a must be F32"));
    }
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    if before.max(after) >= a.ne[0] || before.max(after) > i32::MAX as usize {
        let detail = format!("{before} and {after} are not both below ne[0] and 2^31");
        return Err(refusal.param(detail));
    }
    refusal.check_result(
        a.dtype,
        [a.ne[0] + before + after, a.ne[1], a.ne[2], a.ne[3]],
    )
}

/// Mirrors `ggml_roll`. Blocks would be cut.
fn check_roll(a: Layout, shifts: [i32; 4]) -> Checked {
    let refusal = Refusal {
        op: "roll",
        operands: &[("a", a)],
    };
    if a.dtype.is_quantized() {
        return Err(refusal.dtype("blocks are not moved by elements"));
    }
    if !a.has_packed_rows() {
        return Err(refusal.layout("rows must be packed: call cont() first"));
    }
    let fits = |(shift, n): (i32, usize)| (shift.unsigned_abs() as usize) < n;
    if !shifts.into_iter().zip(a.ne).all(fits) {
        return Err(refusal.param(format!("shifts {shifts:?} must be shorter than dimensions")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F16, Q8_0};
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn padding_fits_numbers_and_goes_round_once() {
        let a = layout(F32, &[4, 3]);
        let check = |before, after, circular| check_pad("pad_ext", a, before, after, circular);
        check([9, 0, 1, 0], [0, 20, 0, 0], false).unwrap();
        check([4, 3, 1, 1], [20, 0, 0, 0], true).unwrap();
        for (before, after, circular) in [
            ([5, 0, 0, 0], [0; 4], true),
            ([0; 4], [1 << 31, 0, 0, 0], false),
            ([0, usize::MAX, 0, 0], [0; 4], false),
        ] {
            let refused = check(before, after, circular);
            assert!(
                matches!(refused, Err(Refused::Param(_))),
                "{before:?} {after:?}"
            );
        }
        let most = i32::MAX as usize;
        let refused = check([most; 4], [most; 4], false);
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_pad("pad", layout(Q8_0, &[32]), [0; 4], [1, 0, 0, 0], false);
        assert!(matches!(refused, Err(Refused::Shape(_))));
    }

    #[test]
    fn mirrors_need_something_to_mirror() {
        check_reflect(layout(F32, &[4, 3]), 3, 3).unwrap();
        for (before, after) in [(4, 0), (0, 4), (usize::MAX, 0)] {
            let refused = check_reflect(layout(F32, &[4, 3]), before, after);
            assert!(matches!(refused, Err(Refused::Param(_))));
        }
        let refused = check_reflect(layout(F16, &[4]), 1, 1);
        assert!(matches!(refused, Err(Refused::DType(_))));
        let refused = check_reflect(transposed(layout(F32, &[4, 3])), 1, 1);
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn shifts_are_shorter_than_dimensions() {
        let a = layout(F32, &[4, 3]);
        check_roll(a, [3, -2, 0, 0]).unwrap();
        for shifts in [
            [4, 0, 0, 0],
            [0, -3, 0, 0],
            [0, 0, 1, 0],
            [i32::MIN, 0, 0, 0],
        ] {
            assert!(matches!(check_roll(a, shifts), Err(Refused::Param(_))));
        }
        let refused = check_roll(transposed(a), [0; 4]);
        assert!(matches!(refused, Err(Refused::Layout(_))));
        let refused = check_roll(layout(Q8_0, &[64]), [1, 0, 0, 0]);
        assert!(matches!(refused, Err(Refused::DType(_))));
    }
}
