//! What leaves are set to.

use ggml_rs::DType::{self, BF16, F16, F32, I32, I64};
use ggml_rs::quantize::quantize;

use crate::common::Random;

/// How the values of a leaf are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// In [-2, 2).
    Numbers,
    /// In [0.5, 1.5): factors and denominators.
    Positive,
    /// -3 to 3: sums and products of them are exact.
    Whole,
    /// Blocks of zeros, whose scales are zero.
    Zeros,
    /// Minus infinity in some places, zero in the others.
    Mask,
    /// 0 and up.
    Positions,
    /// Ids below so many, in lists of one row each.
    Ids { rows: usize, distinct: bool },
    /// What an optimizer's step takes: the numbers of AdamW, or of gradient descent.
    Options { adamw: bool },
}

impl Fill {
    /// The bytes of a leaf, which depend on the seed alone.
    pub fn bytes(self, seed: u64, dtype: DType, ne: [usize; 4]) -> Vec<u8> {
        let mut random = Random::new(seed);
        let count = ne.iter().product();
        match self {
            Self::Ids { rows, distinct } => ids(&mut random, dtype, count, ne[0], rows, distinct),
            Self::Positions => integers(dtype, (0..count).map(|_| random.below(20) as i64)),
            _ if dtype == I32 => integers(dtype, (0..count).map(|_| random.below(7) as i64 - 3)),
            Self::Options { adamw: true } => {
                bytes(F32, &ggml_rs::AdamW::default().values(2), ne[0])
            }
            Self::Options { adamw: false } => bytes(F32, &[0.1, 0.01], ne[0]),
            _ => {
                let values: Vec<f32> = (0..count)
                    .map(|at| self.value(&mut random, at % ne[0] == 0))
                    .collect();
                bytes(dtype, &values, ne[0])
            }
        }
    }

    fn value(self, random: &mut Random, first: bool) -> f32 {
        match self {
            Self::Positive => random.unit() + 0.5,
            Self::Zeros => 0.0,
            Self::Whole => random.below(7) as f32 - 3.0,
            // Each row keeps a place.
            Self::Mask if first || random.below(3) > 0 => 0.0,
            Self::Mask => f32::NEG_INFINITY,
            _ => random.unit() * 4.0 - 2.0,
        }
    }
}

fn bytes(dtype: DType, values: &[f32], row: usize) -> Vec<u8> {
    match dtype {
        F32 => values.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        F16 => values
            .iter()
            .flat_map(|&x| half::f16::from_f32(x).to_ne_bytes())
            .collect(),
        BF16 => values
            .iter()
            .flat_map(|&x| half::bf16::from_f32(x).to_ne_bytes())
            .collect(),
        _ => quantize(dtype, values, row).unwrap(),
    }
}

fn integers(dtype: DType, values: impl Iterator<Item = i64>) -> Vec<u8> {
    let size = if dtype == I64 { 8 } else { 4 };
    values
        .flat_map(|value| value.to_le_bytes().into_iter().take(size))
        .collect()
}

fn ids(
    random: &mut Random,
    dtype: DType,
    count: usize,
    list: usize,
    rows: usize,
    distinct: bool,
) -> Vec<u8> {
    let mut start = 0;
    let id = |at: usize| {
        if at.is_multiple_of(list) {
            start = random.below(rows);
        }
        match distinct {
            true => ((start + at % list) % rows) as i64,
            false => random.below(rows) as i64,
        }
    };
    integers(dtype, (0..count).map(id))
}
