//! From many elements to one, and from one to many.
//!
//! ggml's reductions take F32 on every device, and little else on any. Half-precision operands are therefore copied to
//! F32, reduced there, and rounded to their own type once, at the end.

mod extremum;
mod repeat;
mod scan;
mod sum;

use crate::dtype::DType::{self, BF16, F16, F32};
use crate::error::{Checked, Moved, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// Metal kernels read rows as `float4`, which MSL wants at multiples of this many bytes. The simulated device takes any.
const ALIGNMENT: usize = 16;

impl Tensor<'_> {
    /// Reduces by `by`, which is given a contiguous F32 tensor, and returns to the type of `self`.
    #[track_caller]
    fn reduced(self, op: &'static str, by: impl FnOnce(Self) -> Result<Self>) -> Result<Self> {
        let at = here();
        check(op, self.layout()).at(at)?;
        // Composed of ops that the caller did not write.
        let reduced = by(self.promoted()?).moved_to(at)?;
        if self.dtype() == F32 {
            Ok(reduced)
        } else {
            reduced.cast(self.dtype())
        }
    }

    /// The values in F32, one after the other by every stride, from an aligned start.
    #[track_caller]
    fn promoted(self) -> Result<Self> {
        // SAFETY: the builder's tensors are alive.
        let start = unsafe { self.ptr().as_ref() }.view_offs;
        match self.dtype() {
            F32 if self.layout().is_packed() && start.is_multiple_of(ALIGNMENT) => Ok(self),
            F32 => self.cont(),
            _ => self.cast(F32),
        }
    }

    /// The elements of a contiguous tensor as one row.
    #[track_caller]
    fn flat(self) -> Result<Self> {
        self.reshape([self.shape().elements()])
    }

    /// Reduces everything: rows first, which a GPU does side by side, then the row of what they gave.
    #[track_caller]
    fn by_rows_and_rest(
        self,
        rows: impl FnOnce(Self) -> Result<Self>,
        rest: impl FnOnce(Self) -> Result<Self>,
    ) -> Result<Self> {
        let [row, r1, r2, r3] = self.shape().ne();
        match (row, r1 * r2 * r3) {
            (_, 1) => rest(self),
            // Its rows are reduced already.
            (1, _) => rest(self.flat()?),
            _ => rest(rows(self)?.flat()?),
        }
    }
}

/// Which types are reduced.
fn check(op: &'static str, a: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    if !takes(a.dtype) {
        return Err(refusal.dtype("only F32, F16 and BF16 are reduced"));
    }
    // Kernels count in int, and so does a parameter of pooling.
    if a.ne.iter().any(|&n| n > i32::MAX as usize) {
        return Err(refusal.shape("a dimension exceeds 2^31 - 1"));
    }
    let rows: usize = a.ne[1..].iter().product();
    if rows > i32::MAX as usize {
        return Err(refusal.shape("there are more than 2^31 - 1 rows"));
    }
    Ok(())
}

fn takes(dtype: DType) -> bool {
    matches!(dtype, F32 | F16 | BF16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn floats_are_reduced_in_every_layout_and_nothing_else_is() {
        for dtype in DType::ALL {
            let a = layout(dtype, &[256, 2]);
            match check("sum", a) {
                Ok(()) => assert!(takes(dtype), "{dtype}"),
                Err(error) => assert!(
                    !takes(dtype) && matches!(error, Refused::DType(_)),
                    "{dtype}: {error}"
                ),
            }
        }
        check("sum", transposed(layout(F16, &[4, 6]))).unwrap();
    }

    #[test]
    fn a_row_that_kernels_cannot_count_is_refused() {
        check("max", layout(F16, &[i32::MAX as usize])).unwrap();
        for dims in [&[1 << 31][..], &[1, 1 << 16, 1 << 16]] {
            let error = check("max", layout(F16, dims)).unwrap_err();
            assert!(matches!(error, Refused::Shape(_)), "{error}");
        }
    }
}
