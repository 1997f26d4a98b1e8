//! Images cut into square windows, and put together again.

use ggml_sys as sys;

use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl Tensor<'_> {
    /// Cuts `self` [c, w, h] of F32 into windows: [c, size, size, columns * rows], row by row, with zeros where they stick
    /// out on the right and below.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for four dimensions; [`Error::DType`](crate::Error::DType) unless F32;
    /// [`Error::Param`](crate::Error::Param) for a size of 0 or beyond 2^24.
    #[doc(alias = "ggml_win_part")]
    #[track_caller]
    pub fn win_part(self, size: usize) -> Result<Self> {
        let at = here();
        check_part(self.layout(), size).at(at)?;
        // SAFETY: the tensor is alive, and the check is stricter than ggml_win_part's assertions.
        self.make("win_part", |context| unsafe {
            sys::ggml_win_part(context, self.as_ptr(), size as i32)
        })
    }

    /// Puts the windows `self` [c, size, size, columns * rows] of F32 together to an image [c, width, height]:
    /// [`Tensor::win_part`] the other way round.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` has the windows of such an image;
    /// [`Error::DType`](crate::Error::DType) unless F32.
    #[doc(alias = "ggml_win_unpart")]
    #[track_caller]
    pub fn win_unpart(self, width: usize, height: usize) -> Result<Self> {
        let at = here();
        check_unpart(self.layout(), width, height).at(at)?;
        let [w, h, size] = [width, height, self.layout().ne[1]].map(|n| n as i32);
        // SAFETY: the tensor is alive, and the check is stricter than ggml_win_unpart, which does not count the windows.
        self.make("win_unpart", |context| unsafe {
            sys::ggml_win_unpart(context, self.as_ptr(), w, h, size)
        })
    }
}

/// Windows, and images with a margin of one window, are counted in int.
const MAX_SIZE: usize = 1 << 24;

/// How many windows cover an image.
fn windows(width: usize, height: usize, size: usize) -> Option<usize> {
    width.div_ceil(size).checked_mul(height.div_ceil(size))
}

/// Mirrors `ggml_win_part`.
fn check_part(a: Layout, size: usize) -> Checked {
    let refusal = Refusal {
        op: "win_part",
        operands: &[("a", a)],
    };
    let [c, w, h, n] = a.ne;
    if a.dtype != F32 {
        return Err(refusal.dtype("a must be F32"));
    }
    if size == 0 || size > MAX_SIZE {
        return Err(refusal.param(format!("a size of {size}: it must be 1 to {MAX_SIZE}")));
    }
    let count = windows(w, h, size).filter(|&count| count <= i32::MAX as usize);
    match count {
        Some(count) if n == 1 && w <= MAX_SIZE && h <= MAX_SIZE => {
            refusal.check_result(F32, [c, size, size, count])
        }
        _ => Err(refusal.shape(format!("a must be one image of at most {MAX_SIZE} squared"))),
    }
}

/// What the kernel of WIN_UNPART takes for granted.
fn check_unpart(a: Layout, width: usize, height: usize) -> Checked {
    let refusal = Refusal {
        op: "win_unpart",
        operands: &[("a", a)],
    };
    let [c, size, other, count] = a.ne;
    if a.dtype != F32 {
        return Err(refusal.dtype("a must be F32"));
    }
    let bounded = (1..=MAX_SIZE).contains(&width) && (1..=MAX_SIZE).contains(&height);
    if size != other || size > MAX_SIZE || !bounded || windows(width, height, size) != Some(count) {
        return Err(refusal.shape(format!(
            "a must be the square windows of an image of {width} x {height}"
        )));
    }
    refusal.check_result(F32, [c, width, height, 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn windows_cover_their_image() {
        let a = layout(F32, &[3, 7, 5]);
        check_part(a, 4).unwrap();
        assert!(matches!(check_part(a, 0), Err(Refused::Param(_))));
        assert!(matches!(
            check_part(layout(F32, &[3, 7, 5, 2]), 4),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_part(layout(F16, &[3, 7, 5]), 4),
            Err(Refused::DType(_))
        ));
        let parts = layout(F32, &[3, 4, 4, 4]);
        check_unpart(parts, 7, 5).unwrap();
        for (width, height) in [(9, 5), (4, 4), (0, 5), (usize::MAX, 1)] {
            assert!(matches!(
                check_unpart(parts, width, height),
                Err(Refused::Shape(_))
            ));
        }
        let oblong = layout(F32, &[3, 4, 5, 4]);
        assert!(matches!(check_unpart(oblong, 7, 5), Err(Refused::Shape(_))));
    }
}
