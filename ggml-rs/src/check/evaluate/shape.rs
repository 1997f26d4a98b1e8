//! Ops that move values: copies, parts of tensors, padding, masks of triangles.

use super::call::Call;
use super::memory::{flat, place, places};
use crate::dtype::DType;
use crate::error::Result;

/// CPY, CONT and DUP: the same values in the order of elements, whatever the shapes.
///
/// Only a conversion to integers changes a value: it drops the fraction. I32 is the only one from floats: the nearest, and 0 for NaN.
pub fn copy(call: &Call<'_>) -> Result<Vec<f64>> {
    let values = call.src(0)?.values.into_owned();
    let convert: fn(f64) -> f64 = match call.dtype() {
        DType::I32 => |value| f64::from(value as i32),
        DType::I8 | DType::I16 | DType::I64 => f64::trunc,
        _ => return Ok(values),
    };
    Ok(values.into_iter().map(convert).collect())
}

/// CONCAT along one dimension.
pub fn concat(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, b, dim) = (call.src(0)?, call.src(1)?, call.int(0) as usize);
    let value = |mut at: [usize; 4]| {
        if at[dim] < a.ne[dim] {
            return a.at(at);
        }
        at[dim] -= a.ne[dim];
        b.at(at)
    };
    Ok(places(call.ne()).map(value).collect())
}

/// Where ACC and SET put their second operand: strides and an offset in bytes of the contiguous first one.
struct Region {
    nb: [usize; 3],
    offset: usize,
}

impl Region {
    fn read(call: &Call<'_>) -> Self {
        let bytes = |index| call.int(index) as usize;
        Self {
            nb: [bytes(0), bytes(1), bytes(2)],
            offset: bytes(3),
        }
    }

    fn index(&self, [i0, i1, i2, i3]: [usize; 4], element: usize) -> usize {
        let byte = self.offset + i1 * self.nb[0] + i2 * self.nb[1] + i3 * self.nb[2];
        byte / element + i0
    }
}

/// ACC adds to a region of the first operand, SET replaces it.
pub fn region(call: &Call<'_>, combine: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>> {
    let (region, element) = (Region::read(call), call.dtype().block_bytes());
    let b = call.src(1)?;
    let mut out = call.src(0)?.values.into_owned();
    for (at, &value) in places(b.ne).zip(b.values.iter()) {
        let index = region.index(at, element);
        out[index] = combine(out[index], value);
    }
    Ok(out)
}

/// PAD: zeros around the values, or the values themselves again, as on a torus.
pub fn pad(call: &Call<'_>) -> Result<Vec<f64>> {
    let a = call.src(0)?;
    let before = [0, 2, 4, 6].map(|index| call.int(index));
    let circular = call.int(8) != 0;
    let value = |at: [usize; 4]| {
        let from = [0, 1, 2, 3].map(|d| at[d] as i64 - before[d]);
        let size = a.ne.map(|n| n as i64);
        let inside = (0..4).all(|d| (0..size[d]).contains(&from[d]));
        if inside || circular {
            a.at([0, 1, 2, 3].map(|d| from[d].rem_euclid(size[d]) as usize))
        } else {
            0.0
        }
    };
    Ok(places(call.ne()).map(value).collect())
}

/// DIAG_MASK_INF and DIAG_MASK_ZERO: `value` right of the diagonal that begins at column `past`.
pub fn diag_mask(call: &Call<'_>, value: f64) -> Result<Vec<f64>> {
    let (a, past) = (call.src(0)?, call.int(0) as usize);
    let masked = |(flat, &x): (usize, &f64)| {
        let [i0, i1, ..] = place(a.ne, flat);
        if i0 > past + i1 { value } else { x }
    };
    Ok(a.values.iter().enumerate().map(masked).collect())
}

/// DIAG: a matrix with the row on its diagonal.
pub fn diag(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, ne) = (call.src(0)?, call.ne());
    let mut out = vec![0.0; ne.iter().product()];
    for ([i0, _, i2, i3], &value) in places(a.ne).zip(a.values.iter()) {
        out[flat(ne, [i0, i0, i2, i3])] = value;
    }
    Ok(out)
}
