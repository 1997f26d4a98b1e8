//! Rows that are chosen by ids.

use super::call::Call;
use super::memory::{flat, places};
use crate::error::Result;

/// GET_ROWS: the ids' rows of each matrix.
pub fn get_rows(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, ids) = (call.src(0)?, call.src(1)?);
    let rows = places(ids.ne).map(|at| a.row(ids.index(at), at[1], at[2]));
    Ok(rows.flatten().copied().collect())
}

/// GET_ROWS_BACK: adds each row to the one that its id names.
pub fn get_rows_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (gradient, ids, ne) = (call.src(0)?, call.src(1)?, call.ne());
    let mut out = vec![0.0; ne.iter().product()];
    for (at, row) in places(ids.ne).zip(gradient.rows()) {
        let first = flat(ne, [0, ids.index(at), at[1], at[2]]);
        for (sum, value) in out[first..][..ne[0]].iter_mut().zip(row) {
            *sum += value;
        }
    }
    Ok(out)
}

/// SET_ROWS: operand 0 holds the rows, operand 1 the ids, operand 2 is what they are written to. Ids are repeated over
/// matrices.
pub fn set_rows(call: &Call<'_>) -> Result<Vec<f64>> {
    let (rows, ids, ne) = (call.src(0)?, call.src(1)?, call.ne());
    let mut out = call.src(2)?.values.into_owned();
    for ([_, i1, i2, i3], row) in places([1, rows.ne[1], rows.ne[2], rows.ne[3]]).zip(rows.rows()) {
        let id = ids.index([i1, i2 % ids.ne[1], i3 % ids.ne[2], 0]);
        out[flat(ne, [0, id, i2, i3])..][..ne[0]].copy_from_slice(row);
    }
    Ok(out)
}

/// ADD_ID: to each row of `a` the row of `b` that its id names.
pub fn add_id(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, b, ids) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let value = |at: [usize; 4]| a.at(at) + b.at([at[0], ids.index([at[1], at[2], 0, 0]), 0, 0]);
    Ok(places(a.ne).map(value).collect())
}

/// ARGSORT: the columns of each row in the order of their values, from the smallest or (parameter 0 is 1) the largest on.
pub fn argsort(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, descending) = (call.src(0)?, call.int(0) == 1);
    Ok(a.rows().flat_map(|row| sorted(row, descending)).collect())
}

/// TOP_K: the columns of the largest values of each row, from the largest on. ggml promises no order.
pub fn top_k(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, count) = (call.src(0)?, call.ne()[0]);
    let largest = |row: &[f64]| {
        sorted(row, true)
            .into_iter()
            .take(count)
            .collect::<Vec<_>>()
    };
    Ok(a.rows().flat_map(largest).collect())
}

fn sorted(row: &[f64], descending: bool) -> Vec<f64> {
    let mut columns: Vec<usize> = (0..row.len()).collect();
    columns.sort_by(|&i, &j| {
        let order = row[i].total_cmp(&row[j]);
        if descending { order.reverse() } else { order }
    });
    columns.into_iter().map(|column| column as f64).collect()
}

/// ARGMAX: the column of the largest value of each row, the first of equal ones.
pub fn argmax(call: &Call<'_>) -> Result<Vec<f64>> {
    let largest = |row: &[f64]| {
        let mut best = 0;
        for (column, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = column;
            }
        }
        best as f64
    };
    Ok(call.src(0)?.rows().map(largest).collect())
}
