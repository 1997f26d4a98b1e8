//! Windows of images and positions within them.

use super::call::Call;
use super::memory::{flat, places};
use crate::error::Result;

/// WIN_PART: cuts `[channels, w, h]` into square windows, with zeros beyond the edges.
pub fn win_part(call: &Call<'_>) -> Result<Vec<f64>> {
    let a = call.src(0)?;
    let (across, size) = (call.int(0) as usize, call.int(2) as usize);
    let value = |[channel, x, y, window]: [usize; 4]| {
        let (x, y) = (window % across * size + x, window / across * size + y);
        match x < a.ne[1] && y < a.ne[2] {
            true => a.at([channel, x, y, 0]),
            false => 0.0,
        }
    };
    Ok(places(call.ne()).map(value).collect())
}

/// WIN_UNPART: puts windows together again.
pub fn win_unpart(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, ne, size) = (call.src(0)?, call.ne(), call.int(0) as usize);
    let across = ne[1].div_ceil(size);
    let value = |[channel, x, y, _]: [usize; 4]| {
        a.at([channel, x % size, y % size, y / size * across + x / size])
    };
    Ok(places(ne).map(value).collect())
}

/// GET_REL_POS: the row of each pair's distance, the last key at the first query being row 0.
pub fn get_rel_pos(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, ne) = (call.src(0)?, call.ne());
    let value = |[i, key, query, _]: [usize; 4]| a.at([i, ne[1] - 1 - key + query, 0, 0]);
    Ok(places(ne).map(value).collect())
}

/// ADD_REL_POS: to a place's attention to `[kx, ky]` adds what operand 1 has for it and `kx`, and operand 2 for it and `ky`.
pub fn add_rel_pos(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, by_x, by_y) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let size = by_x.ne[0];
    let values = a.values.iter().enumerate().map(|(number, value)| {
        let (kx, ky, place) = (number % size, number / size % size, number / (size * size));
        value + by_x.values[place * size + kx] + by_y.values[place * size + ky]
    });
    Ok(values.collect())
}

/// PAD_REFLECT_1D: rows continued as in a mirror on the first and on the last element.
pub fn pad_reflect_1d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, before) = (call.src(0)?, call.int(0));
    let last = a.ne[0] as i64 - 1;
    let value = |[i0, i1, i2, i3]: [usize; 4]| {
        let at = (i0 as i64 - before).abs();
        let at = if at > last { 2 * last - at } else { at };
        a.at([at as usize, i1, i2, i3])
    };
    Ok(places(call.ne()).map(value).collect())
}

/// ROLL: each dimension turned by its shift.
pub fn roll(call: &Call<'_>) -> Result<Vec<f64>> {
    let a = call.src(0)?;
    let mut out = vec![0.0; a.values.len()];
    for (at, &value) in places(a.ne).zip(a.values.iter()) {
        let to = [0, 1, 2, 3].map(|d| {
            let shifted = at[d] as i64 + call.int(d);
            shifted.rem_euclid(a.ne[d] as i64) as usize
        });
        out[flat(a.ne, to)] = value;
    }
    Ok(out)
}
