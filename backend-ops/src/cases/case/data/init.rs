//! How an operand is filled.

use ggml_rs::DType;
use rand_chacha::ChaCha8Rng;

use super::{Operand, draw, uniform};

/// What an operand is filled with.
#[derive(Clone, Copy, Debug)]
pub enum Init {
    /// Values uniform in `[low, high)`, then converted to the storage type.
    Uniform([f32; 2]),
    /// One value everywhere.
    Constant(f32),
    /// For each row (a token) different ids of so many experts, drawn at random.
    Experts(usize),
    /// Ids of rows, drawn at random.
    Rows {
        /// How many rows there are.
        rows: usize,
        /// Whether no row appears twice in a row of ids.
        distinct: bool,
    },
    /// In each row the numbers from 0 up, in random order: no two values are equal.
    Permutation,
    /// Uniform in `[-1, 1)` with f32's corners strewn in: zeros of both signs, denormals, the largest finite values, infinities,
    /// and NaN where the measure is [`ValuesAndNan`](crate::case::Measure::ValuesAndNan).
    Extremes,
    /// The same without NaN, for ops that say nothing about it.
    Infinities,
    /// Whatever the function draws, in ne order.
    Drawn(fn(&Operand, &mut ChaCha8Rng) -> Vec<f32>),
}

/// Values that arithmetic treats specially.
const CORNERS: [f32; 10] = [
    0.0,
    -0.0,
    f32::MIN_POSITIVE,
    1e-40,
    -1e-45,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Every fourth value is a corner, each in turn.
pub(super) fn extremes(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    strewn(rng, n, &CORNERS)
}

/// The same with all corners but the last, which is NaN.
pub(super) fn infinities(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    strewn(rng, n, &CORNERS[..CORNERS.len() - 1])
}

fn strewn(rng: &mut ChaCha8Rng, n: usize, corners: &[f32]) -> Vec<f32> {
    let mut values = uniform(rng, n, [-1.0, 1.0]);
    for (value, corner) in values
        .iter_mut()
        .skip(1)
        .step_by(4)
        .zip(corners.iter().cycle())
    {
        *value = *corner;
    }
    values
}

/// In each row the numbers from 0 up, in random order, for an [`Init::Drawn`].
pub fn permutations(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let [row, rows] = [operand.ne[0], operand.rows()];
    let ids = super::draw_ids(rng, rows, row, row);
    ids.into_iter().map(|id| id as f32).collect()
}

/// Integers over the range of the operand's type, as far as f32 holds each of them, for an [`Init::Drawn`].
pub fn integers(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let bound: i32 = match operand.dtype {
        DType::I8 => 1 << 7,
        DType::I16 => 1 << 15,
        _ => 1 << 24,
    };
    let picks = draw(rng, operand.ne.iter().product(), 2 * bound as usize);
    (picks.into_iter())
        .map(|pick| (pick as i32 - bound) as f32)
        .collect()
}
