//! Normalisations.

use super::call::Call;
use super::memory::flat;
use crate::error::Result;

/// `f` of each row.
fn by_row(call: &Call<'_>, f: impl Fn(&[f64]) -> Vec<f64>) -> Result<Vec<f64>> {
    Ok(call.src(0)?.rows().flat_map(f).collect())
}

/// Zero mean, and unit variance but for `eps`.
fn standardised(values: &[f64], eps: f64) -> Vec<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let scale = 1.0 / (variance + eps).sqrt();
    values.iter().map(|x| (x - mean) * scale).collect()
}

pub fn norm(call: &Call<'_>) -> Result<Vec<f64>> {
    let eps = call.float(0);
    by_row(call, |row| standardised(row, eps))
}

fn mean_square(row: &[f64]) -> f64 {
    row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64
}

pub fn rms_norm(call: &Call<'_>) -> Result<Vec<f64>> {
    let eps = call.float(0);
    by_row(call, |row| {
        let scale = 1.0 / (mean_square(row) + eps).sqrt();
        row.iter().map(|x| x * scale).collect()
    })
}

/// RMS_NORM_BACK: operand 0 is the gradient, operand 1 the op's input.
pub fn rms_norm_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (gradient, x, eps) = (call.src(0)?, call.src(1)?, call.float(0));
    let back = |(dy, x): (&[f64], &[f64])| {
        let square = mean_square(x) + eps;
        let along = dot(x, dy) / x.len() as f64 / square;
        let pairs = x.iter().zip(dy);
        pairs
            .map(|(x, dy)| (dy - x * along) / square.sqrt())
            .collect::<Vec<_>>()
    };
    Ok(gradient.rows().zip(x.rows()).flat_map(back).collect())
}

pub fn l2_norm(call: &Call<'_>) -> Result<Vec<f64>> {
    let eps = call.float(0);
    by_row(call, |row| {
        let length = dot(row, row).sqrt().max(eps);
        row.iter().map(|x| x / length).collect()
    })
}

/// GROUP_NORM: over groups of whole channels (`ne[2]`). Where the groups do not come out even, the last has fewer.
pub fn group_norm(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, groups, eps) = (call.src(0)?, call.int(0) as usize, call.float(1));
    let [n0, n1, channels, batch] = a.ne;
    let per_group = channels.div_ceil(groups);
    let mut out = a.values.to_vec();
    for i3 in 0..batch {
        for first in (0..channels).step_by(per_group) {
            let len = n0 * n1 * per_group.min(channels - first);
            let group = &mut out[flat(a.ne, [0, 0, first, i3])..][..len];
            let normal = standardised(group, eps);
            group.copy_from_slice(&normal);
        }
    }
    Ok(out)
}

/// The sum of products. Several sums at a time, so that none waits for the one before it.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    const AT_ONCE: usize = 16;
    let (a, a_rest) = a.as_chunks::<AT_ONCE>();
    let (b, b_rest) = b.as_chunks::<AT_ONCE>();
    let mut sums = [0.0; AT_ONCE];
    for (a, b) in a.iter().zip(b) {
        for i in 0..AT_ONCE {
            sums[i] += a[i] * b[i];
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.into_iter().sum::<f64>() + rest.sum::<f64>()
}
