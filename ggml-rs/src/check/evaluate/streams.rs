//! Hyper-connections: several residual streams, mixed by weights that depend on the token.

use super::call::Call;
use super::elementwise::sigmoid;
use super::memory::places;
use super::softmax::shares;
use crate::error::Result;

/// Streams of DSV4_HC_COMB, whose kernels take no other number.
const STREAMS: usize = 4;

/// DSV4_HC_COMB: for each token a matrix that is made doubly stochastic by turns: softmax of its rows, then columns and rows
/// divided by their sums. It is the last part of `mixes`, after two vectors.
pub fn comb(call: &Call<'_>) -> Result<Vec<f64>> {
    let (mixes, scale, base) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let (eps, rounds, scale) = (call.float(0), call.int(1), scale.values[2]);
    let token = |mixes: &[f64]| {
        let pairs = mixes.iter().zip(base.values.iter()).skip(2 * STREAMS);
        let mut matrix: Vec<f64> = pairs.map(|(mix, base)| mix * scale + base).collect();
        for row in matrix.chunks_mut(STREAMS) {
            let shares = shares(row, None);
            let pairs = row.iter_mut().zip(shares);
            pairs.for_each(|(value, share)| *value = share + eps);
        }
        divide_columns(&mut matrix, eps);
        for _ in 1..rounds {
            divide_rows(&mut matrix, eps);
            divide_columns(&mut matrix, eps);
        }
        matrix
    };
    Ok(mixes.rows().flat_map(token).collect())
}

fn divide_rows(matrix: &mut [f64], eps: f64) {
    for row in matrix.chunks_mut(STREAMS) {
        let sum = eps + row.iter().sum::<f64>();
        row.iter_mut().for_each(|value| *value /= sum);
    }
}

fn divide_columns(matrix: &mut [f64], eps: f64) {
    for column in 0..STREAMS {
        let column = || (column..).step_by(STREAMS).take(STREAMS);
        let sum = eps + column().map(|index| matrix[index]).sum::<f64>();
        column().for_each(|index| matrix[index] /= sum);
    }
}

/// DSV4_HC_PRE: the sum of a token's streams, weighted; the weights are one for each stream, or a gate for each element.
pub fn pre(call: &Call<'_>) -> Result<Vec<f64>> {
    let (x, weights) = (call.src(0)?, call.src(1)?);
    let (scale, gated) = (call.float(0), call.int(1) != 0);
    let weight = |i: usize, stream: usize, token: usize| match gated {
        true => sigmoid(weights.at([i, stream, token, 0])),
        false => weights.at([stream, token, 0, 0]),
    };
    let value = |[i, token, ..]: [usize; 4]| {
        let streams = 0..x.ne[1];
        let sum: f64 = streams
            .map(|stream| x.at([i, stream, token, 0]) * weight(i, stream, token))
            .sum();
        scale * sum
    };
    Ok(places(call.ne()).map(value).collect())
}

/// DSV4_HC_POST: a layer's result in each stream's share, and the streams, mixed by a matrix where there is one.
pub fn post(call: &Call<'_>) -> Result<Vec<f64>> {
    let (x, residual, shares) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let mixing = call.optional(3);
    let value = |[i, stream, token, _]: [usize; 4]| {
        let own = x.at([i, token, 0, 0]) * shares.at([stream, token, 0, 0]);
        let kept: f64 = match &mixing {
            None => residual.at([i, stream, token, 0]),
            Some(mixing) => (0..residual.ne[1])
                .map(|from| residual.at([i, from, token, 0]) * mixing.at([stream, from, token, 0]))
                .sum(),
        };
        own + kept
    };
    Ok(places(call.ne()).map(value).collect())
}
