//! Masks as attention has them.

use rand_chacha::ChaCha8Rng;

use crate::data::{Operand, draw, uniform};

/// The blocks of keys and of queries that upstream hides.
const BLOCK: [usize; 2] = [128, 64];

/// Uniform in `[-1, 1)`, with about a tenth hidden (minus infinity) and a tenth zero in whole blocks, which kernels may skip.
pub(super) fn in_blocks(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let [keys, queries, ..] = operand.ne;
    let matrices = operand.ne[2] * operand.ne[3];
    let elements = keys * queries * matrices;
    let mut mask = uniform(rng, elements, [-1.0, 1.0]);
    for _ in 0..elements / 5 / (BLOCK[0] * BLOCK[1]) {
        let mut pick = |bound| draw(rng, 1, bound)[0] as usize;
        let (matrix, query, key) = (pick(matrices), pick(queries), pick(keys));
        let value = [0.0, f32::NEG_INFINITY][pick(2)];
        for query in query..queries.min(query + BLOCK[1]) {
            let row = (matrix * queries + query) * keys;
            mask[row + key..row + keys.min(key + BLOCK[0])].fill(value);
        }
    }
    mask
}

/// Each query sees the keys up to its own place, counted from the end.
pub(super) fn causal(operand: &Operand, _rng: &mut ChaCha8Rng) -> Vec<f32> {
    let [keys, queries, ..] = operand.ne;
    let matrices = operand.ne[2] * operand.ne[3];
    let matrix = (0..queries).flat_map(|query| {
        (0..keys).map(move |key| match key + queries <= query + keys {
            true => 0.0,
            false => f32::NEG_INFINITY,
        })
    });
    let matrix: Vec<_> = matrix.collect();
    matrix.repeat(matrices)
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn blocks_are_hidden_and_zeroed_inside_the_mask() {
        let operand = Operand::new("m", DType::F16, [1024, 512, 1, 2]);
        let mask = in_blocks(&operand, &mut ChaCha8Rng::from_seed([7; 32]));
        assert_eq!(mask.len(), 1024 * 512 * 2);
        let share = |is: fn(&f32) -> bool| {
            mask.iter().filter(|value| is(value)).count() as f64 / mask.len() as f64
        };
        for share in [
            share(|value| value.is_infinite()),
            share(|&value| value == 0.0),
        ] {
            assert!((0.02..0.2).contains(&share), "{share}");
        }
    }

    #[test]
    fn a_query_sees_no_later_key() {
        let operand = Operand::new("m", DType::F16, [4, 2, 1, 1]);
        let mask = causal(&operand, &mut ChaCha8Rng::from_seed([0; 32]));
        let seen: Vec<_> = mask.iter().map(|&value| value == 0.0).collect();
        assert_eq!(seen[..4], [true, true, true, false]);
        assert_eq!(seen[4..], [true; 4]);
    }
}
