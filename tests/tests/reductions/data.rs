//! Data on which half precision shows: sums that overflow or stagnate on the way and end within the type's range, extrema
//! that another half type cannot hold.

use ggml_rs::DType;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::variant::Op;

const LONGEST_ROW: u64 = 5000;

/// A matrix of `rows` rows of `row` values.
pub struct Case {
    pub row: usize,
    pub rows: usize,
    pub values: Vec<f32>,
}

impl Case {
    /// Depends on its arguments alone.
    pub fn new(seed: u64, op: Op, dtype: DType) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // Some short rows, around the sizes of simdgroups and of vectors.
        let longest = if seed.is_multiple_of(4) {
            70
        } else {
            LONGEST_ROW
        };
        let row = 1 + (random.next_u64() % longest) as usize;
        let rows = 1 + (random.next_u64() % 4) as usize;
        let value = |i: usize| {
            let unit = unit(&mut random);
            match (op, dtype) {
                // Up to 65504 and far beyond, and back again.
                (Op::Sum, DType::F16) if i % row >= row / 2 => -50.0 - 100.0 * unit,
                (Op::Sum | Op::Mean, _) => 50.0 + 100.0 * unit,
                // More digits than BF16 has.
                (Op::Max | Op::Min, DType::F16) => 130_000.0 * unit - 65_000.0,
                // Far larger and smaller than F16 can be.
                (Op::Max | Op::Min, _) => signed_power(unit),
            }
        };
        Self {
            row,
            rows,
            values: (0..row * rows).map(value).collect(),
        }
    }
}

/// In [0, 1).
fn unit(random: &mut ChaCha8Rng) -> f32 {
    (random.next_u32() >> 8) as f32 / (1 << 24) as f32
}

/// From -1e30 to 1e30, most of them far from both and from 0.
fn signed_power(unit: f32) -> f32 {
    let power = 120.0 * unit - 60.0;
    10f32.powf(power.abs() - 30.0).copysign(power)
}
