//! Products of matrices.

use super::call::Call;
use super::memory::{place, places};
use super::norm::dot;
use crate::error::Result;

/// Columns of a product that a row of `a` is multiplied with while it is in the cache.
const COLUMNS: usize = 8;

/// MUL_MAT: the dot product of a row of `a` with a row of `b`, with `a` broadcast over `ne[2]` and `ne[3]`.
pub fn mul_mat(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, b) = (call.src(0)?, call.src(1)?);
    let repeats = [b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]];
    let ne = call.ne();
    let mut out = vec![0.0; ne.iter().product()];
    for (number, matrix) in out.chunks_mut(ne[0] * ne[1]).enumerate() {
        let [i2, i3, ..] = place([ne[2], ne[3], 1, 1], number);
        for (number, columns) in matrix.chunks_mut(ne[0] * COLUMNS).enumerate() {
            for i in 0..ne[0] {
                let row = a.row(i, i2 / repeats[0], i3 / repeats[1]);
                for (j, column) in columns.chunks_mut(ne[0]).enumerate() {
                    column[i] = dot(row, b.row(number * COLUMNS + j, i2, i3));
                }
            }
        }
    }
    Ok(out)
}

/// OUT_PROD: the sum over `l` of `a[i, l] * b[j, l]`, broadcast as MUL_MAT.
pub fn out_prod(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, b, ne) = (call.src(0)?, call.src(1)?, call.ne());
    let repeats = [b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]];
    let mut out = vec![0.0; ne.iter().product()];
    for (number, column) in out.chunks_mut(ne[0]).enumerate() {
        let [j, i2, i3, _] = place([ne[1], ne[2], ne[3], 1], number);
        for l in 0..a.ne[1] {
            let factor = b.at([j, l, i2, i3]);
            let row = a.row(l, i2 / repeats[0], i3 / repeats[1]);
            for (sum, a) in column.iter_mut().zip(row) {
                *sum += a * factor;
            }
        }
    }
    Ok(out)
}

/// MUL_MAT_ID: MUL_MAT with the matrix that the ids choose for each place and token.
pub fn mul_mat_id(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, b, ids) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let value = |[i, place, token, _]: [usize; 4]| {
        let expert = ids.index([place, token, 0, 0]);
        dot(a.row(i, expert, 0), b.row(place % b.ne[1], token, 0))
    };
    Ok(places(call.ne()).map(value).collect())
}
