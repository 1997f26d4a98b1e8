//! Shapes in ggml's order: the first dimension is the one whose elements lie next to each other.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Checked, Placed, Refused, Result, here};

/// The most elements a tensor may have. ggml multiplies dimensions in `int64_t` and asserts on
/// overflow; a quarter of the range keeps every such product far from it.
const MAX_ELEMENTS: usize = (i64::MAX / 4) as usize;

/// Whether no dimension is 0 and there are no more elements than a tensor may have.
#[inline]
fn countable([n0, n1, n2, n3]: [usize; 4]) -> bool {
    // A 0 makes the product 0, or overflow before it.
    let rest = |n: usize| n.checked_mul(n1)?.checked_mul(n2)?.checked_mul(n3);
    rest(n0).is_some_and(|n| (1..=MAX_ELEMENTS).contains(&n))
}

#[cold]
fn refused(dims: &[usize], detail: &str) -> Refused {
    let detail = format!("{dims:?}: {detail}");
    Refused::shape("shape", detail)
}

/// The dimensions of a tensor, `ne[0]` (contiguous) to `ne[3]`.
///
/// A shape always has four dimensions; those that were not given are 1. No dimension is 0, and the
/// number of elements fits ggml's arithmetic.
///
/// ```
/// use ggml_rs::Shape;
/// // A matrix of 8 rows of 256: the row length comes first ...
/// let ne_order = Shape::new(&[256, 8])?;
/// // ... unless the order that most frameworks print is asked for.
/// assert_eq!(ne_order, Shape::row_major(&[8, 256])?);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    ne: [usize; 4],
}

impl Shape {
    /// A shape in ne order.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless there are 1 to 4 dimensions, none is 0 and their product does not overflow.
    #[inline]
    #[track_caller]
    pub fn new(dims: &[usize]) -> Result<Self> {
        let at = here();
        Self::checked(dims).at(at)
    }

    /// As [`Shape::new`].
    #[inline]
    pub(crate) fn checked(dims: &[usize]) -> Checked<Self> {
        let mut ne = [1; 4];
        if dims.is_empty() || dims.len() > ne.len() {
            return Err(refused(dims, "a tensor has 1 to 4 dimensions"));
        }
        for (n, &dim) in ne.iter_mut().zip(dims) {
            *n = dim;
        }
        if !countable(ne) {
            let detail = match ne.contains(&0) {
                true => "a dimension is 0; ggml divides by dimensions",
                false => "the number of elements overflows",
            };
            return Err(refused(dims, detail));
        }
        Ok(Self { ne })
    }

    /// Whether dimensions are a shape, with no error built where they are not, that [`Shape::bytes`] takes for this type.
    #[inline]
    pub(crate) fn fits(dtype: DType, ne: [usize; 4]) -> bool {
        let [n0, n1, n2, n3] = ne;
        let bytes = || {
            let row = (n0 / dtype.block_len()).checked_mul(dtype.block_bytes())?;
            row.checked_mul(n1 * n2 * n3)
        };
        countable(ne)
            && n0.is_multiple_of(dtype.block_len())
            && bytes().is_some_and(|bytes| bytes <= isize::MAX as usize)
    }

    /// A shape in row-major order, slowest dimension first, as most frameworks print it.
    ///
    /// # Errors
    /// As [`Shape::new`].
    #[track_caller]
    pub fn row_major(dims: &[usize]) -> Result<Self> {
        let reversed: Vec<usize> = dims.iter().rev().copied().collect();
        Self::new(&reversed)
    }

    /// A shape from dimensions that were checked before, such as those of a tensor.
    pub(crate) const fn from_checked(ne: [usize; 4]) -> Self {
        Self { ne }
    }

    /// The four dimensions in ne order.
    pub const fn ne(&self) -> [usize; 4] {
        self.ne
    }

    /// The number of elements.
    #[doc(alias = "ggml_nelements")]
    pub const fn elements(&self) -> usize {
        self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// The number of rows: elements divided by `ne[0]`.
    #[doc(alias = "ggml_nrows")]
    pub const fn rows(&self) -> usize {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// The bytes of a contiguous tensor of this shape.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when `ne[0]` is not a multiple of the type's block, or the size overflows.
    #[doc(alias = "ggml_nbytes")]
    #[track_caller]
    #[inline]
    pub fn bytes(&self, dtype: DType) -> Result<usize> {
        let at = here();
        self.checked_bytes(dtype).at(at)
    }

    /// As [`Shape::bytes`].
    #[inline]
    pub(crate) fn checked_bytes(&self, dtype: DType) -> Checked<usize> {
        let row = dtype.checked_row_bytes(self.ne[0])?;
        row.checked_mul(self.rows())
            .filter(|&n| n <= isize::MAX as usize)
            .ok_or_else(|| {
                let detail = format!("{self} of {dtype} overflows the address space");
                Refused::shape("shape", detail)
            })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.ne, f)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape{:?}", self.ne)
    }
}

/// What can be given where a shape is wanted: a [`Shape`], or an array or slice of dimensions in ne order.
pub trait IntoShape {
    /// The shape.
    ///
    /// # Errors
    /// As [`Shape::new`].
    fn into_shape(self) -> Result<Shape>;
}

impl IntoShape for Shape {
    fn into_shape(self) -> Result<Shape> {
        Ok(self)
    }
}

impl IntoShape for &[usize] {
    #[track_caller]
    fn into_shape(self) -> Result<Shape> {
        Shape::new(self)
    }
}

impl<const N: usize> IntoShape for [usize; N] {
    #[inline]
    #[track_caller]
    fn into_shape(self) -> Result<Shape> {
        Shape::new(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_dimensions_are_one() {
        let shape = Shape::new(&[3, 5]).unwrap();
        assert_eq!(shape.ne(), [3, 5, 1, 1]);
        assert_eq!((shape.elements(), shape.rows()), (15, 5));
        assert_eq!(shape, [3, 5].into_shape().unwrap());
    }

    #[test]
    fn invalid_shapes_are_refused_by_name() {
        for (dims, why) in [
            (&[][..], "1 to 4"),
            (&[1, 1, 1, 1, 1], "1 to 4"),
            (&[4, 0], "dimension is 0"),
            (&[usize::MAX, 2], "overflows"),
            (&[1 << 40, 1 << 40], "overflows"),
            (&[i64::MAX as usize], "overflows"),
        ] {
            let text = Shape::new(dims).unwrap_err().to_string();
            assert!(
                text.contains(why) && text.contains(&format!("{dims:?}")),
                "{text}"
            );
        }
    }

    #[test]
    fn what_fits_is_what_new_and_bytes_take() {
        let sides = [0, 1, 2, 31, 32, 64, 1 << 20, 1 << 31, 1 << 60, 1 << 61];
        let sides = sides
            .into_iter()
            .chain([(1 << 61) - 1, 1 << 63, usize::MAX]);
        let sides: Vec<usize> = sides.collect();
        let mut fitting = 0;
        for dtype in [DType::F32, DType::I8, DType::F64, DType::Q8_0, DType::Q4_K] {
            for place in 0..sides.len().pow(4) {
                let side = |i: u32| sides[place / sides.len().pow(i) % sides.len()];
                let ne = [0, 1, 2, 3].map(side);
                let slowly = Shape::new(&ne).and_then(|shape| shape.bytes(dtype));
                assert_eq!(Shape::fits(dtype, ne), slowly.is_ok(), "{dtype} {ne:?}");
                fitting += usize::from(slowly.is_ok());
            }
        }
        assert!(fitting > 1000, "{fitting}");
    }

    #[test]
    fn bytes_count_blocks_and_refuse_overflow() {
        assert_eq!(Shape::new(&[64, 3]).unwrap().bytes(DType::Q8_0), Ok(204));
        assert!(Shape::new(&[33]).unwrap().bytes(DType::Q8_0).is_err());
        assert!(Shape::new(&[1 << 60]).unwrap().bytes(DType::F64).is_err());
    }
}
