//! What inputs are set to.

use ggml_rs::DType::{self, BF16, F16, F32, F64};
use ggml_rs::Input;

use crate::common::Random;

/// How the bytes of an input are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    Zeros,
    /// Numbers of ordinary size.
    Numbers,
    /// Every pattern of bits: NaN and infinities of all kinds in floats, any scale in blocks.
    Bits,
    /// NaN and infinities among numbers.
    Infinite,
    Ids {
        rows: usize,
        distinct: bool,
        /// Ids that do not exist are tried first, and must be refused.
        wrong: bool,
    },
}

impl Fill {
    pub fn draw(random: &mut Random, dtype: DType, wild: bool) -> Self {
        let odd = if wild { 4 } else { 8 };
        match random.below(odd) {
            0 => Self::Bits,
            1 => Self::Zeros,
            2 if dtype.is_float() => Self::Infinite,
            _ => Self::Numbers,
        }
    }

    /// Values of the input; none where there are no rows that ids could name.
    pub fn bytes(self, random: &mut Random, input: &Input) -> Option<Vec<u8>> {
        let (dtype, shape) = (input.dtype(), input.shape());
        let len = shape.bytes(dtype).unwrap();
        Some(match self {
            Self::Zeros => vec![0; len],
            Self::Ids { rows: 0, .. } => return None,
            Self::Ids { rows, distinct, .. } => ids(
                random,
                rows,
                distinct,
                shape.ne()[0],
                shape.elements(),
                dtype,
            ),
            Self::Numbers | Self::Infinite if dtype.is_float() => {
                floats(random, dtype, shape.elements(), self == Self::Infinite)
            }
            Self::Numbers if !dtype.is_quantized() => {
                integers(random, dtype.block_bytes(), shape.elements())
            }
            Self::Numbers => blocks(random, len),
            Self::Bits | Self::Infinite => bits(random, len),
        })
    }

    /// Ids of which one does not exist, or is there twice.
    pub fn wrong_ids(self, random: &mut Random, input: &Input) -> Option<Vec<u8>> {
        let Self::Ids {
            rows,
            distinct,
            wrong: true,
        } = self
        else {
            return None;
        };
        let mut bytes = self.bytes(random, input)?;
        let size = input.dtype().block_bytes();
        let list = input.shape().ne()[0];
        let mut put = |at: usize, value: i64| {
            bytes[at * size..][..size].copy_from_slice(&value.to_ne_bytes()[..size]);
        };
        match random.below(3) {
            0 if distinct && list > 1 => {
                put(0, 0);
                put(list - 1, 0);
            }
            1 => put(random.below(input.shape().elements()), -1),
            _ => {
                let beyond = i64::try_from(rows)
                    .ok()
                    .filter(|&n| n <= i64::from(i32::MAX))?;
                put(random.below(input.shape().elements()), beyond);
            }
        }
        Some(bytes)
    }
}

fn bits(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// Bytes whose halves, read as F16 wherever a scale lies, are small numbers.
fn blocks(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = bits(random, len);
    for byte in &mut bytes {
        *byte &= 0x2f;
    }
    bytes
}

fn floats(random: &mut Random, dtype: DType, count: usize, infinite: bool) -> Vec<u8> {
    const ODD: [f32; 6] = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        -0.0,
    ];
    let mut bytes = Vec::with_capacity(count * dtype.block_bytes());
    for _ in 0..count {
        let value = match infinite && random.below(4) == 0 {
            true => random.pick(&ODD),
            false => random.unit() * 4.0 - 2.0,
        };
        match dtype {
            F32 => bytes.extend(value.to_ne_bytes()),
            F64 => bytes.extend(f64::from(value).to_ne_bytes()),
            F16 => bytes.extend(half::f16::from_f32(value).to_ne_bytes()),
            BF16 => bytes.extend(half::bf16::from_f32(value).to_ne_bytes()),
            _ => unreachable!("{dtype} is no float"),
        }
    }
    bytes
}

/// Small integers, some of them negative.
fn integers(random: &mut Random, size: usize, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|_| {
            let value = random.below(24) as i64 - 2;
            value.to_le_bytes().into_iter().take(size)
        })
        .collect()
}

fn ids(
    random: &mut Random,
    rows: usize,
    distinct: bool,
    list: usize,
    count: usize,
    dtype: DType,
) -> Vec<u8> {
    let size = dtype.block_bytes();
    // A start for each list, and steps of one, so that distinct ids stay distinct. Ids beyond the type do not exist.
    let rows = rows.min(i32::MAX as usize);
    let mut start = 0;
    (0..count)
        .flat_map(|at| {
            if at % list == 0 {
                start = random.below(rows);
            }
            let id = match distinct {
                true => (start + at % list) % rows,
                false => random.below(rows),
            };
            (id as i64).to_le_bytes().into_iter().take(size)
        })
        .collect()
}
