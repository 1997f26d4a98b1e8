//! Triangles of matrices, and their inverses' products.

use ggml_sys as sys;

use super::call::Call;
use super::memory::{flat, places};
use crate::error::Result;

/// TRI: zero outside a triangle; parameter 0 says which, and whether it has the diagonal.
pub fn tri(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, kind) = (call.src(0)?, call.int(0) as sys::ggml_tri_type);
    let inside = |column: usize, row: usize| match kind {
        sys::GGML_TRI_TYPE_LOWER => column < row,
        sys::GGML_TRI_TYPE_LOWER_DIAG => column <= row,
        sys::GGML_TRI_TYPE_UPPER => column > row,
        _ => column >= row,
    };
    let value = |(at, &value): ([usize; 4], &f64)| if inside(at[0], at[1]) { value } else { 0.0 };
    Ok(places(a.ne).zip(a.values.iter()).map(value).collect())
}

/// SOLVE_TRI: `x` with `a x = b`, `a` lower triangular, row by row. What stands above the diagonal is not read.
pub fn solve_tri(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, mut x) = (call.src(0)?, call.src(1)?.values.into_owned());
    let ne = call.ne();
    for [row, i2, i3, _] in places([ne[1], ne[2], ne[3], 1]) {
        let first = flat(ne, [0, 0, i2, i3]);
        let (above, this) = x[first..][..ne[0] * (row + 1)].split_at_mut(ne[0] * row);
        let factors = a.row(row, i2, i3);
        for (known, factor) in above.chunks(ne[0]).zip(factors) {
            let pairs = this.iter_mut().zip(known);
            pairs.for_each(|(value, known)| *value -= factor * known);
        }
        this.iter_mut().for_each(|value| *value /= factors[row]);
    }
    Ok(x)
}
