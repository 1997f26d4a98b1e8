//! Reference results in double precision, on operands that were dequantised before.
//!
//! These are written for trust first: every sum runs over k in ascending order in `f64`, and the product
//! of two `f32` values is exact there.

use crate::error::{Call, Result};
use crate::tasks;

/// Values with a shape and strides, both in ne order and in elements.
///
/// ```
/// use ggml_rs::check::reference::Values;
/// let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let rows = Values::contiguous(&data, [3, 2, 1, 1])?;
/// assert_eq!(rows.transposed().ne(), [2, 3, 1, 1]);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    data: &'a [f32],
    ne: [usize; 4],
    stride: [usize; 4],
}

impl<'a> Values<'a> {
    /// Values that lie one after the other.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when `data` is shorter than `ne` says.
    #[track_caller]
    pub fn contiguous(data: &'a [f32], ne: [usize; 4]) -> Result<Self> {
        let call = Call::new("Values::contiguous");
        let stride = [
            1,
            ne[0],
            ne[0].saturating_mul(ne[1]),
            ne[0].saturating_mul(ne[1]).saturating_mul(ne[2]),
        ];
        Self::within(call, data, ne, stride)
    }

    /// Values with a stride per dimension, in elements.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when `data` does not reach to the last element.
    #[track_caller]
    pub fn strided(data: &'a [f32], ne: [usize; 4], stride: [usize; 4]) -> Result<Self> {
        Self::within(Call::new("Values::strided"), data, ne, stride)
    }

    fn within(call: Call, data: &'a [f32], ne: [usize; 4], stride: [usize; 4]) -> Result<Self> {
        let last = ne
            .iter()
            .zip(&stride)
            .try_fold(0usize, |last, (&n, &step)| {
                n.checked_sub(1)?.checked_mul(step)?.checked_add(last)
            });
        if last.is_none_or(|last| last >= data.len()) {
            let detail = format!(
                "{ne:?} with strides {stride:?} does not lie within {} values",
                data.len()
            );
            return Err(call.shape(detail));
        }
        Ok(Self { data, ne, stride })
    }

    /// The same values with the first two dimensions exchanged.
    pub fn transposed(mut self) -> Self {
        self.ne.swap(0, 1);
        self.stride.swap(0, 1);
        self
    }

    /// The shape in ne order.
    pub fn ne(&self) -> [usize; 4] {
        self.ne
    }

    /// Where row `i1` of matrix `(i2, i3)` begins.
    fn row(&self, i1: usize, i2: usize, i3: usize) -> usize {
        i1 * self.stride[1] + i2 * self.stride[2] + i3 * self.stride[3]
    }
}

/// OUT_PROD: `out[i, j] = sum over l of a[i, l] * b[j, l]`, per matrix, with `a` broadcast over `ne[2]` and `ne[3]`.
///
/// `a` is [m, k, a2, a3], `b` is [n, k, b2, b3] with b2 a multiple of a2 and b3 of a3; the result is
/// [m, n, b2, b3], contiguous. The formula is that of ggml's CPU backend.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the shapes do not fit.
#[track_caller]
pub fn out_prod(a: Values<'_>, b: Values<'_>) -> Result<Vec<f64>> {
    let call = Call::new("reference::out_prod");
    let (ma, mb) = (a.ne, b.ne);
    if ma[1] != mb[1] || !mb[2].is_multiple_of(ma[2]) || !mb[3].is_multiple_of(ma[3]) {
        let detail = format!(
            "a {ma:?} and b {mb:?}: ne[1] must agree and ne[2], ne[3] of b be multiples of a's"
        );
        return Err(call.shape(detail));
    }
    Ok(product(a, b))
}

/// MUL_MAT: `out[i, j] = sum over l of a[l, i] * b[l, j]`, per matrix, with `a` broadcast over `ne[2]` and `ne[3]`.
///
/// `a` is [k, m, a2, a3], `b` is [k, n, b2, b3]; the result is [m, n, b2, b3], contiguous.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the shapes do not fit.
#[track_caller]
pub fn mul_mat(a: Values<'_>, b: Values<'_>) -> Result<Vec<f64>> {
    let call = Call::new("reference::mul_mat");
    let (ma, mb) = (a.ne, b.ne);
    if ma[0] != mb[0] || !mb[2].is_multiple_of(ma[2]) || !mb[3].is_multiple_of(ma[3]) {
        let detail = format!(
            "a {ma:?} and b {mb:?}: ne[0] must agree and ne[2], ne[3] of b be multiples of a's"
        );
        return Err(call.shape(detail));
    }
    Ok(product(a.transposed(), b.transposed()))
}

/// MUL_MAT_ID: `out[i, e, t] = sum over l of a[l, i, id] * b[l, e % r, t]`, where `id` is the expert `ids[t * used + e]`.
///
/// `a` is [k, m, experts, 1], `b` is [k, r, tokens, 1], and `ids` names the used experts of one token after the other, as
/// many for each, a multiple of r. The result is [m, used, tokens, 1], contiguous.
///
/// ```
/// use ggml_rs::check::reference::{Values, mul_mat_id};
/// // Two experts of one row each; the token uses the second, then the first.
/// let a = Values::contiguous(&[1.0, 2.0, 10.0, 20.0], [2, 1, 2, 1])?;
/// let b = Values::contiguous(&[3.0, 4.0], [2, 1, 1, 1])?;
/// assert_eq!(mul_mat_id(a, b, &[1, 0])?, [110.0, 11.0]);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the shapes do not fit; [`Error::Param`](crate::Error::Param) for an id that is not below the number of experts.
#[track_caller]
pub fn mul_mat_id(a: Values<'_>, b: Values<'_>, ids: &[i32]) -> Result<Vec<f64>> {
    let call = Call::new("reference::mul_mat_id");
    let (ma, mb) = (a.ne, b.ne);
    let [_, r, tokens, _] = mb;
    let used = ids.len() / tokens;
    let whole = ids.len().is_multiple_of(tokens) && used.is_multiple_of(r);
    if ma[0] != mb[0] || ma[3] != 1 || mb[3] != 1 || !whole {
        let detail = format!(
            "a {ma:?}, b {mb:?} and {} ids: ne[0] must agree, ne[3] be 1, and the ids of each token a multiple of ne[1] of b",
            ids.len()
        );
        return Err(call.shape(detail));
    }
    let mut out = Vec::with_capacity(ma[1] * ids.len());
    for (place, &id) in ids.iter().enumerate() {
        let expert = usize::try_from(id).ok().filter(|&expert| expert < ma[2]);
        let Some(expert) = expert else {
            let detail = format!("id {place} names expert {id} of {}", ma[2]);
            return Err(call.param(detail));
        };
        let (token, slot) = (place / used, place % used);
        let from = b.row(slot % r, token, 0);
        out.extend((0..ma[1]).map(|i| dot(a, a.row(i, expert, 0), b, from)));
    }
    Ok(out)
}

/// The product of two rows of one length, which begin at `from_a` and `from_b`.
fn dot(a: Values<'_>, from_a: usize, b: Values<'_>, from_b: usize) -> f64 {
    (0..a.ne[0])
        .map(|l| {
            let left = a.data[from_a + l * a.stride[0]];
            let right = b.data[from_b + l * b.stride[0]];
            f64::from(left) * f64::from(right)
        })
        .sum()
}

/// Output columns that one pass over k computes: each row of `a` is loaded once for all of them.
const COLUMNS: usize = 4;
/// Output rows that one pass computes: `ROWS * COLUMNS` sums stay in the first-level cache.
const ROWS: usize = 512;

/// The product of `out_prod`, whose shapes have been checked. Threads share out whole columns, so the
/// result does not depend on their number.
fn product(a: Values<'_>, b: Values<'_>) -> Vec<f64> {
    let (m, columns) = (a.ne[0], b.ne[0] * b.ne[2] * b.ne[3]);
    let mut out = vec![0.0; m * columns];
    let threads = tasks::threads();
    let share = columns
        .div_ceil(threads)
        .next_multiple_of(COLUMNS.min(columns));
    let parts = out.chunks_mut(share * m).enumerate();
    let shared = tasks::share(parts.len(), parts, |(t, part)| {
        product_columns(a, b, t * share, part);
        Ok(())
    });
    debug_assert!(shared.is_ok(), "no part fails");
    out
}

/// The columns from `first` on, as many as `out` holds.
fn product_columns(a: Values<'_>, b: Values<'_>, first: usize, out: &mut [f64]) {
    let (m, n) = (a.ne[0], b.ne[0]);
    let last = first + out.len() / m;
    let mut column = first;
    while column < last {
        let matrix = column / n;
        // A block of columns never crosses from one matrix to the next.
        let width = COLUMNS.min(last - column).min(n - column % n);
        let block = &mut out[(column - first) * m..][..width * m];
        product_block(a, b, matrix, column % n, block);
        column += width;
    }
}

/// `out.len() / m` columns from `j` on of one matrix.
fn product_block(a: Values<'_>, b: Values<'_>, matrix: usize, j: usize, out: &mut [f64]) {
    let (m, k) = (a.ne[0], a.ne[1]);
    let (i2, i3) = (matrix % b.ne[2], matrix / b.ne[2]);
    let (a2, a3) = (i2 / (b.ne[2] / a.ne[2]), i3 / (b.ne[3] / a.ne[3]));
    let mut row = [0.0; ROWS];
    for i in (0..m).step_by(ROWS) {
        let rows = ROWS.min(m - i);
        for l in 0..k {
            load(a, a.row(l, a2, a3) + i * a.stride[0], &mut row[..rows]);
            let from = b.row(l, i2, i3) + j * b.stride[0];
            for (c, column) in out.chunks_exact_mut(m).enumerate() {
                let factor = f64::from(b.data[from + c * b.stride[0]]);
                for (sum, &value) in column[i..][..rows].iter_mut().zip(&row) {
                    *sum += value * factor;
                }
            }
        }
    }
}

/// A piece of a row of `a`, widened once for all the columns that use it.
fn load(a: Values<'_>, from: usize, row: &mut [f64]) {
    for (value, &source) in row
        .iter_mut()
        .zip(a.data[from..].iter().step_by(a.stride[0].max(1)))
    {
        *value = f64::from(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Small integers, whose products and sums are exact in any order.
    fn integers(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 31 + seed * 17) % 15) as f32 - 7.0)
            .collect()
    }

    fn naive(a: Values<'_>, b: Values<'_>) -> Vec<f64> {
        let mut out = Vec::new();
        for i3 in 0..b.ne[3] {
            for i2 in 0..b.ne[2] {
                for j in 0..b.ne[0] {
                    for i in 0..a.ne[0] {
                        let (a2, a3) = (i2 * a.ne[2] / b.ne[2], i3 * a.ne[3] / b.ne[3]);
                        out.push(
                            (0..a.ne[1])
                                .map(|l| {
                                    let left = a.data[a.row(l, a2, a3) + i * a.stride[0]];
                                    let right = b.data[b.row(l, i2, i3) + j * b.stride[0]];
                                    f64::from(left) * f64::from(right)
                                })
                                .sum(),
                        );
                    }
                }
            }
        }
        out
    }

    #[test]
    fn out_prod_agrees_with_the_definition() {
        for ([m, n, k], [a2, a3], [r2, r3]) in [
            ([1, 1, 1], [1, 1], [1, 1]),
            ([5, 3, 7], [1, 1], [1, 1]),
            ([600, 9, 11], [2, 1], [1, 3]),
            ([33, 6, 4], [2, 3], [2, 2]),
        ] {
            let (left, right) = (
                integers(m * k * a2 * a3, 1),
                integers(n * k * a2 * a3 * r2 * r3, 2),
            );
            let a = Values::contiguous(&left, [m, k, a2, a3]).unwrap();
            let b = Values::contiguous(&right, [n, k, a2 * r2, a3 * r3]).unwrap();
            assert_eq!(out_prod(a, b).unwrap(), naive(a, b));
            let b = Values::contiguous(&right, [k, n, a2 * r2, a3 * r3])
                .unwrap()
                .transposed();
            assert_eq!(out_prod(a, b).unwrap(), naive(a, b));
        }
    }

    #[test]
    fn mul_mat_agrees_with_a_hand_computed_product() {
        let a = Values::contiguous(&[1.0, 2.0, 3.0, 4.0], [2, 2, 1, 1]).unwrap();
        let b = Values::contiguous(&[5.0, 6.0], [2, 1, 1, 1]).unwrap();
        assert_eq!(mul_mat(a, b).unwrap(), [17.0, 39.0]);
    }

    #[test]
    fn mul_mat_id_agrees_with_the_definition() {
        for ([k, m, experts], [r, used, tokens]) in [
            ([1, 1, 1], [1, 1, 1]),
            ([7, 5, 4], [1, 3, 6]),
            ([7, 5, 4], [3, 3, 6]),
            ([4, 3, 9], [2, 4, 5]),
        ] {
            let (left, right) = (integers(k * m * experts, 1), integers(k * r * tokens, 2));
            let ids: Vec<i32> = (0..used * tokens)
                .map(|i| ((i * 5 + i / used) % experts) as i32)
                .collect();
            let mut expected = Vec::new();
            for t in 0..tokens {
                for e in 0..used {
                    let expert = ids[t * used + e] as usize;
                    for i in 0..m {
                        let mut sum = 0.0;
                        for l in 0..k {
                            sum += f64::from(left[(expert * m + i) * k + l])
                                * f64::from(right[(t * r + e % r) * k + l]);
                        }
                        expected.push(sum);
                    }
                }
            }
            let a = Values::contiguous(&left, [k, m, experts, 1]).unwrap();
            let b = Values::contiguous(&right, [k, r, tokens, 1]).unwrap();
            assert_eq!(mul_mat_id(a, b, &ids).unwrap(), expected);
        }
    }

    #[test]
    fn mul_mat_id_refuses_what_does_not_fit() {
        let data = [1.0; 24];
        let values = |ne| Values::contiguous(&data, ne).unwrap();
        let (a, b) = (values([2, 3, 4, 1]), values([2, 2, 3, 1]));
        assert_eq!(
            mul_mat_id(a, b, &[0, 1, 2, 3, 0, 1]).unwrap().len(),
            3 * 2 * 3
        );
        for (a, b, ids) in [
            (values([3, 2, 4, 1]), b, &[0; 6][..]),
            (values([2, 3, 2, 2]), b, &[0; 6]),
            (a, values([2, 2, 3, 2]), &[0; 6]),
            (a, b, &[0; 5]),
            (a, b, &[0; 3]),
        ] {
            let refused = mul_mat_id(a, b, ids);
            assert!(matches!(refused, Err(Error::Shape(_))), "{refused:?}");
        }
        for id in [-1, 4] {
            let refused = mul_mat_id(a, b, &[0, 1, 2, id, 0, 1]).unwrap_err();
            assert!(
                matches!(refused, Error::Param(_)) && refused.to_string().contains("id 3"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_large_gradient_stays_finite() {
        let a = Values::contiguous(&[1.5e5], [1, 1, 1, 1]).unwrap();
        assert_eq!(out_prod(a, a).unwrap(), [2.25e10]);
    }

    #[test]
    fn shapes_and_extents_are_checked() {
        let data = [0.0; 6];
        assert!(Values::contiguous(&data, [3, 3, 1, 1]).is_err());
        assert!(Values::strided(&data, [2, 2, 1, 1], [1, 5, 0, 0]).is_err());
        assert!(Values::contiguous(&data, [0, 1, 1, 1]).is_err());
        let a = Values::contiguous(&data, [3, 2, 1, 1]).unwrap();
        assert!(
            out_prod(a, a.transposed())
                .unwrap_err()
                .to_string()
                .contains("[3, 2, 1, 1]")
        );
    }
}
