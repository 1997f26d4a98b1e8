//! Sums, and copies that sums undo.

use super::call::Call;
use super::memory::{flat, places};
use crate::error::Result;

/// SUM: of every element.
pub fn sum(call: &Call<'_>) -> Result<Vec<f64>> {
    Ok(vec![call.src(0)?.values.iter().sum()])
}

/// COUNT_EQUAL: how many of two tensors' integers are equal.
pub fn count_equal(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, b) = (call.src(0)?, call.src(1)?);
    let pairs = a.values.iter().zip(b.values.iter());
    Ok(vec![pairs.filter(|(a, b)| a == b).count() as f64])
}

/// SUM_ROWS: of each row.
pub fn sum_rows(call: &Call<'_>) -> Result<Vec<f64>> {
    Ok(call.src(0)?.rows().map(|row| row.iter().sum()).collect())
}

/// MEAN: of each row.
pub fn mean(call: &Call<'_>) -> Result<Vec<f64>> {
    let a = call.src(0)?;
    let len = a.ne[0] as f64;
    Ok(a.rows().map(|row| row.iter().sum::<f64>() / len).collect())
}

/// CUMSUM: each element with those before it in its row.
pub fn cumsum(call: &Call<'_>) -> Result<Vec<f64>> {
    let a = call.src(0)?;
    let running = |row: &[f64]| {
        let mut sum = 0.0;
        row.iter().map(|x| (sum += x, sum).1).collect::<Vec<_>>()
    };
    Ok(a.rows().flat_map(running).collect())
}

/// REPEAT: copies side by side until the result is full.
pub fn repeat(call: &Call<'_>) -> Result<Vec<f64>> {
    let a = call.src(0)?;
    Ok(places(call.ne()).map(|at| a.repeated(at)).collect())
}

/// REPEAT_BACK: adds up what REPEAT would copy from one place.
pub fn repeat_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, ne) = (call.src(0)?, call.ne());
    let mut out = vec![0.0; ne.iter().product()];
    for (at, &value) in places(a.ne).zip(a.values.iter()) {
        out[flat(ne, [0, 1, 2, 3].map(|d| at[d] % ne[d]))] += value;
    }
    Ok(out)
}
