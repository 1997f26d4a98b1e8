//! Pooling: the mean or the maximum of each window.

use ggml_sys as sys;

use super::{ConvOptions, windows};
use crate::dtype::DType::{F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// What becomes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_op_pool")]
pub enum Pool {
    /// The largest element.
    Max,
    /// The mean.
    Average,
}

impl Pool {
    fn raw(self) -> sys::ggml_op_pool {
        match self {
            Self::Max => sys::GGML_OP_POOL_MAX,
            Self::Average => sys::GGML_OP_POOL_AVG,
        }
    }
}

/// Windows of `size` elements in `N` dimensions, `stride` elements apart, the first of them `padding` elements before the
/// image.
///
/// ```
/// use ggml_rs::{Pool, Pool2d};
/// let halves = Pool2d::new(Pool::Max, [2, 2]);
/// assert_eq!(halves.stride, [2, 2]);
/// assert_eq!(halves.padding([1, 0]).padding, [1, 0]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PoolOptions<const N: usize> {
    /// What becomes of a window.
    pub pool: Pool,
    /// Elements of a window.
    pub size: [usize; N],
    /// Elements from one window to the next.
    pub stride: [usize; N],
    /// Elements by which windows stick out on both sides.
    pub padding: [usize; N],
}

/// Windows along `ne[0]`.
pub type Pool1d = PoolOptions<1>;
/// Windows along `ne[0]` and `ne[1]`.
pub type Pool2d = PoolOptions<2>;

impl<const N: usize> PoolOptions<N> {
    /// Windows next to each other, without padding.
    pub const fn new(pool: Pool, size: [usize; N]) -> Self {
        Self {
            pool,
            size,
            stride: size,
            padding: [0; N],
        }
    }

    /// With this stride.
    pub const fn stride(self, stride: [usize; N]) -> Self {
        Self { stride, ..self }
    }

    /// With this padding.
    pub const fn padding(self, padding: [usize; N]) -> Self {
        Self { padding, ..self }
    }

    /// How many windows there are along each dimension.
    fn outputs(self, refusal: &Refusal, image: [usize; N]) -> Checked<[usize; N]> {
        let mut outputs = [0; N];
        for dim in 0..N {
            let [size, stride, padding] = [self.size, self.stride, self.padding].map(|x| x[dim]);
            if size == 0 {
                return Err(refusal.param("a window of no elements"));
            }
            outputs[dim] = windows(refusal, dim, image[dim], size, stride, padding)?;
            check_exact(refusal, dim, image[dim] + 2 * padding + stride)?;
        }
        if self
            .size
            .iter()
            .try_fold(1_i32, |n, &size| n.checked_mul(size as i32))
            .is_none()
        {
            return Err(refusal.param("a window has more than 2^31 - 1 elements"));
        }
        Ok(outputs)
    }

    fn raw(self) -> [[i32; N]; 3] {
        ConvOptions {
            stride: self.size,
            padding: self.stride,
            dilation: self.padding,
        }
        .raw()
    }
}

/// ggml counts windows in `float`.
fn check_exact(refusal: &Refusal, dim: usize, size: usize) -> Checked {
    const EXACT: usize = 1 << 23;
    if size > EXACT {
        return Err(refusal.shape(format!(
            "dimension {dim} with padding and stride exceeds {EXACT}, beyond which ggml's count of windows is not exact"
        )));
    }
    Ok(())
}

impl<'g> Tensor<'g> {
    /// Windows of each row of F32 or F16: [n, ...] gives [windows, ...] of F32. An average is over the elements that exist.
    /// The maximum of a window with NaN is NaN. Of a window that is all padding the average is 0 and the maximum minus infinity.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for another type; [`Error::Shape`](crate::Error::Shape) where no window fits, or
    /// too many; [`Error::Param`](crate::Error::Param) for a stride or a window of 0.
    #[doc(alias = "ggml_pool_1d")]
    #[track_caller]
    pub fn pool_1d(self, options: Pool1d) -> Result<Self> {
        let at = here();
        check_pool_1d(self.layout(), options).at(at)?;
        let [[k], [s], [p]] = options.raw();
        // SAFETY: the tensor is alive, and the check is stricter than ggml_pool_1d's assertion.
        self.make("pool_1d", |context| unsafe {
            sys::ggml_pool_1d(context, self.as_ptr(), options.pool.raw(), k, s, p)
        })
    }

    /// Windows of each plane of F32 or F16: [w, h, ...] gives [ow, oh, ...] of F32. An average divides by the whole window:
    /// padding counts as zeros. The maximum of a window with NaN is NaN, of one that is all padding minus infinity.
    ///
    /// # Errors
    /// As [`Tensor::pool_1d`].
    #[doc(alias = "ggml_pool_2d")]
    #[track_caller]
    pub fn pool_2d(self, options: Pool2d) -> Result<Self> {
        let at = here();
        check_pool_2d("pool_2d", self.layout(), options).at(at)?;
        let [[k0, k1], [s0, s1], [p0, p1]] = options.raw();
        let [p0, p1] = [p0, p1].map(|p| p as f32);
        // SAFETY: the tensor is alive, and the check is stricter than ggml_pool_2d's assertions.
        self.make("pool_2d", |context| unsafe {
            let (a, pool) = (self.as_ptr(), options.pool.raw());
            sys::ggml_pool_2d(context, a, pool, k0, k1, s0, s1, p0, p1)
        })
    }

    /// The gradient of [`Tensor::pool_2d`] of `image`: `self` is the gradient of its result, both F32. A maximum's goes to
    /// the first of the largest elements.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` has the shape of the pooled image;
    /// [`Error::DType`](crate::Error::DType) unless both are F32; [`Error::Layout`](crate::Error::Layout) unless both are
    /// contiguous; otherwise as [`Tensor::pool_2d`].
    #[doc(alias = "ggml_pool_2d_back")]
    #[track_caller]
    pub fn pool_2d_back(self, image: Tensor<'g>, options: Pool2d) -> Result<Self> {
        let at = here();
        check_pool_2d_back(self.layout(), image.layout(), options).at(at)?;
        let [[k0, k1], [s0, s1], [p0, p1]] = options.raw();
        let [p0, p1] = [p0, p1].map(|p| p as f32);
        // SAFETY: the tensors are alive, and the check is stricter than ggml_pool_2d_back, which asserts nothing.
        self.make("pool_2d_back", |context| unsafe {
            let (a, image, pool) = (self.as_ptr(), image.as_ptr(), options.pool.raw());
            sys::ggml_pool_2d_back(context, a, image, pool, k0, k1, s0, s1, p0, p1)
        })
    }
}

impl<'g> Tensor<'g> {
    /// The same for the parameters of a POOL_2D node, which were checked when that was made.
    pub(in crate::graph) fn pool_2d_back_like(
        self,
        image: Tensor<'g>,
        params: &[i32; 16],
    ) -> Result<Self> {
        let &[pool, k0, k1, s0, s1, p0, p1, ..] = params;
        let [p0, p1] = [p0, p1].map(|p| p as f32);
        // SAFETY: the tensors are alive; ggml_pool_2d_back asserts nothing, and `self` has the shape of the node.
        self.make("pool_2d_back", |context| unsafe {
            let (a, image, pool) = (self.as_ptr(), image.as_ptr(), pool as sys::ggml_op_pool);
            sys::ggml_pool_2d_back(context, a, image, pool, k0, k1, s0, s1, p0, p1)
        })
    }
}

fn check_pool_1d(a: Layout, options: Pool1d) -> Checked {
    let refusal = Refusal {
        op: "pool_1d",
        operands: &[("a", a)],
    };
    if !matches!(a.dtype, F32 | F16) {
        return Err(refusal.dtype("only F32 and F16 are pooled"));
    }
    let [n] = options.outputs(&refusal, [a.ne[0]])?;
    refusal.check_result(F32, [n, a.ne[1], a.ne[2], a.ne[3]])
}

/// Mirrors `ggml_pool_2d`; the shape of the result.
fn check_pool_2d(op: &'static str, a: Layout, options: Pool2d) -> Checked<[usize; 4]> {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    if !matches!(a.dtype, F32 | F16) {
        return Err(refusal.dtype("only F32 and F16 are pooled"));
    }
    let [ow, oh] = options.outputs(&refusal, [a.ne[0], a.ne[1]])?;
    let ne = [ow, oh, a.ne[2], a.ne[3]];
    refusal.check_result(F32, ne)?;
    Ok(ne)
}

/// What the kernel of POOL_2D_BACK takes for granted.
fn check_pool_2d_back(a: Layout, image: Layout, options: Pool2d) -> Checked {
    let refusal = Refusal {
        op: "pool_2d_back",
        operands: &[("a", a), ("image", image)],
    };
    let pooled = check_pool_2d("pool_2d_back", image, options)?;
    if a.ne != pooled {
        return Err(refusal.shape(format!("the pooled image is {pooled:?}")));
    }
    if a.dtype != F32 || image.dtype != F32 {
        return Err(refusal.dtype("both must be F32"));
    }
    if !a.is_contiguous() || !image.is_contiguous() {
        return Err(refusal.layout("both must be contiguous: call cont() first"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::BF16;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn windows_hold_something_and_are_counted() {
        let a = layout(F32, &[9, 6, 2]);
        let check = |options| check_pool_2d("pool_2d", a, options);
        let squares = Pool2d::new(Pool::Max, [3, 2]);
        assert_eq!(check(squares), Ok([3, 3, 2, 1]));
        assert_eq!(
            check(squares.padding([2, 1]).stride([1, 1])),
            Ok([11, 7, 2, 1])
        );
        // The first and last windows are all padding.
        assert_eq!(check(squares.padding([3, 0])), Ok([5, 3, 2, 1]));
        for options in [
            squares.stride([0, 1]),
            squares.stride([1, 1 << 25]),
            Pool2d::new(Pool::Max, [0, 1]),
        ] {
            assert!(
                matches!(check(options), Err(Refused::Param(_))),
                "{options:?}"
            );
        }
        let wide = Pool2d::new(Pool::Max, [10, 1]);
        assert!(matches!(check(wide), Err(Refused::Shape(_))));
        let halves = layout(BF16, &[9, 6]);
        assert!(matches!(
            check_pool_2d("pool_2d", halves, squares),
            Err(Refused::DType(_))
        ));
        let long = layout(F32, &[1 << 24]);
        let pairs = Pool1d::new(Pool::Average, [2]);
        assert!(matches!(check_pool_1d(long, pairs), Err(Refused::Shape(_))));
    }

    #[test]
    fn gradients_have_the_pooled_shape() {
        let image = layout(F32, &[9, 6, 2]);
        let options = Pool2d::new(Pool::Max, [3, 2]);
        check_pool_2d_back(layout(F32, &[3, 3, 2]), image, options).unwrap();
        let other = layout(F32, &[3, 3, 1]);
        assert!(matches!(
            check_pool_2d_back(other, image, options),
            Err(Refused::Shape(_))
        ));
        let halves = layout(F16, &[9, 6, 2]);
        let error = check_pool_2d_back(layout(F32, &[3, 3, 2]), halves, options);
        assert!(matches!(error, Err(Refused::DType(_))));
    }
}
