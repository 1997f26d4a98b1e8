//! Seeded test data.
//!
//! Every operand has a stream of its own, derived from the seed, the case string and the operand's name. So the data of
//! a case does not depend on which other cases run: a failure found in a full run is reproduced by `-o 'OP(...)'` with
//! the same seed. ChaCha8 and the conversion to float below are fixed, so a seed means the same data on every machine
//! and after every upgrade of the rand crates.

mod blocks;
mod init;

use ggml_rs::DType;
use ggml_rs::quantize::{dequantize, quantize};
pub use init::{Init, integers, permutations};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// ggml's quantizers search for the best scale of every block, so a quantized operand with more elements than this repeats
/// rows: each is drawn at random from a pool of this size. Drawn, not taken in turn, so that a kernel that skips, repeats
/// or shifts rows still meets other values.
const POOL_ELEMENTS: usize = 1 << 22;

/// A leaf tensor of a case: what to allocate and what to fill it with.
#[derive(Clone, Debug)]
pub struct Operand {
    /// ggml's usual names: `a`, `b`, `src`.
    pub name: &'static str,
    /// The storage type.
    pub dtype: DType,
    /// The shape as stored, in ggml's ne order; views and transposes are part of the graph.
    pub ne: [usize; 4],
    /// What it is filled with.
    pub init: Init,
    /// Whether its gradient is checked. Upstream calls these parameters.
    pub trained: bool,
}

impl Operand {
    /// An operand with upstream's default values, uniform in `[-1, 1)`.
    #[must_use]
    pub fn new(name: &'static str, dtype: DType, ne: [usize; 4]) -> Self {
        Self {
            name,
            dtype,
            ne,
            init: Init::Uniform([-1.0, 1.0]),
            trained: false,
        }
    }

    /// Which `used` of `experts` experts each of `tokens` tokens uses.
    #[must_use]
    pub fn expert_ids(name: &'static str, [used, tokens]: [usize; 2], experts: usize) -> Self {
        Self::new(name, DType::I32, [used, tokens, 1, 1]).init(Init::Experts(experts))
    }

    /// Ids of `rows` rows, in I32, or in I64 with [`Operand::dtype`] set so.
    #[must_use]
    pub fn row_ids(name: &'static str, ne: [usize; 4], rows: usize, distinct: bool) -> Self {
        Self::new(name, DType::I32, ne).init(Init::Rows { rows, distinct })
    }

    /// The same operand with values in `[-bound, bound)`.
    #[must_use]
    pub fn within(self, bound: f32) -> Self {
        self.init(Init::Uniform([-bound, bound]))
    }

    /// The same operand filled with something else.
    #[must_use]
    pub fn init(self, init: Init) -> Self {
        Self { init, ..self }
    }

    /// The same operand, with its gradient checked in `grad` mode where it is F32.
    #[must_use]
    pub fn trained(self) -> Self {
        Self {
            trained: self.dtype == DType::F32,
            ..self
        }
    }

    fn rows(&self) -> usize {
        self.ne[1..].iter().product()
    }
}

/// The generated content of an [`Operand`].
#[derive(Clone, Debug)]
pub struct OperandData {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl OperandData {
    /// Generates the operand's content for a case.
    ///
    /// # Errors
    /// When ggml cannot quantize to the operand's type.
    pub fn generate(operand: &Operand, seed: u64, case: &str) -> ggml_rs::Result<Self> {
        let mut rng = stream(seed, case, operand.name);
        let (row_len, rows) = (operand.ne[0], operand.rows());
        let elements = row_len * rows;
        match operand.init {
            Init::Uniform(range) => Self::uniform(&mut rng, operand, range),
            Init::Experts(experts) => Ok(Self::of_integers(
                operand.dtype,
                &draw_ids(&mut rng, rows, row_len, experts),
            )),
            Init::Rows {
                rows: bound,
                distinct,
            } => Ok(Self::of_integers(
                operand.dtype,
                &draw_rows(&mut rng, [row_len, rows], bound, distinct),
            )),
            Init::Constant(value) => Self::stored(operand, vec![value; elements]),
            Init::Permutation => Self::stored(operand, permutations(operand, &mut rng)),
            Init::Extremes => Self::stored(operand, init::extremes(&mut rng, elements)),
            Init::Infinities => Self::stored(operand, init::infinities(&mut rng, elements)),
            Init::Drawn(draw) => Self::stored(operand, draw(operand, &mut rng)),
        }
    }

    fn uniform(rng: &mut ChaCha8Rng, operand: &Operand, range: [f32; 2]) -> ggml_rs::Result<Self> {
        let (row_len, rows) = (operand.ne[0], operand.rows());
        let pooled = operand.dtype.is_quantized() && row_len * rows > POOL_ELEMENTS;
        if !pooled {
            return Self::drawn(rng, operand, rows * row_len, range);
        }
        let distinct = (POOL_ELEMENTS / row_len).max(1);
        let pool = Self::drawn(rng, operand, distinct * row_len, range)?;
        let picks = draw(rng, rows, distinct);
        Ok(Self {
            bytes: gather(&pool.bytes, &picks, pool.bytes.len() / distinct),
            values: gather(&pool.values, &picks, row_len),
        })
    }

    /// `n` values that are all different.
    fn drawn(
        rng: &mut ChaCha8Rng,
        operand: &Operand,
        n: usize,
        [low, high]: [f32; 2],
    ) -> ggml_rs::Result<Self> {
        let blocks = match low == -high {
            true => blocks::draw(rng, operand.dtype, n, high)?,
            false => None,
        };
        if let Some(bytes) = blocks {
            let values = dequantize(operand.dtype, &bytes)?;
            return Ok(Self { bytes, values });
        }
        Self::stored(operand, uniform(rng, n, [low, high]))
    }

    /// Values as the operand's type holds them: what the device sees is the converted value, so the reference must start from
    /// it as well.
    fn stored(operand: &Operand, values: Vec<f32>) -> ggml_rs::Result<Self> {
        if is_integer(operand.dtype) {
            let integers: Vec<i32> = values.iter().map(|&value| value as i32).collect();
            return Ok(Self::of_integers(operand.dtype, &integers));
        }
        let bytes = quantize(operand.dtype, &values, operand.ne[0])?;
        let values = match operand.dtype {
            DType::F32 => values,
            dtype => dequantize(dtype, &bytes)?,
        };
        Ok(Self { bytes, values })
    }

    /// Integers of the type, which holds them.
    fn of_integers(dtype: DType, integers: &[i32]) -> Self {
        let bytes = match dtype {
            DType::I64 => (integers.iter())
                .flat_map(|&integer| i64::from(integer).to_ne_bytes())
                .collect(),
            DType::I16 => (integers.iter())
                .flat_map(|&integer| (integer as i16).to_ne_bytes())
                .collect(),
            DType::I8 => (integers.iter())
                .flat_map(|&integer| (integer as i8).to_ne_bytes())
                .collect(),
            _ => (integers.iter())
                .flat_map(|integer| integer.to_ne_bytes())
                .collect(),
        };
        Self {
            bytes,
            // Exact: no case has 2^24 rows or experts, nor larger integers.
            values: integers.iter().map(|&integer| integer as f32).collect(),
        }
    }

    /// The ids of an [`Operand::expert_ids`], token by token.
    #[must_use]
    pub fn ids(&self) -> Vec<i32> {
        self.values.iter().map(|&id| id as i32).collect()
    }

    /// The bytes to upload, contiguous in ne order.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values after conversion to the storage type and back, contiguous in ne order.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// The values of a tensor's bytes. Integers are exact up to 2^24.
///
/// # Errors
/// When the type does not convert to f32.
pub fn values_of(dtype: DType, bytes: &[u8]) -> ggml_rs::Result<Vec<f32>> {
    /// Each integer of `N` bytes.
    fn integers<const N: usize>(bytes: &[u8], read: fn([u8; N]) -> i64) -> Vec<f32> {
        let (integers, _) = bytes.as_chunks();
        integers.iter().map(|&bytes| read(bytes) as f32).collect()
    }
    Ok(match dtype {
        DType::I8 => integers(bytes, |bytes| i8::from_ne_bytes(bytes).into()),
        DType::I16 => integers(bytes, |bytes| i16::from_ne_bytes(bytes).into()),
        DType::I32 => integers(bytes, |bytes| i32::from_ne_bytes(bytes).into()),
        DType::I64 => integers(bytes, i64::from_ne_bytes),
        _ => return dequantize(dtype, bytes),
    })
}

/// What remains of values that are stored as `dtype`.
///
/// # Errors
/// When values do not convert to the type.
pub fn stored_as(dtype: DType, values: &[f32]) -> ggml_rs::Result<Vec<f32>> {
    match dtype {
        DType::F32 => Ok(values.to_vec()),
        other => dequantize(other, &quantize(other, values, other.block_len())?),
    }
}

fn stream(seed: u64, case: &str, operand: &str) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&fnv1a(case).to_le_bytes());
    key[16..24].copy_from_slice(&fnv1a(operand).to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// FNV-1a, 64 bits: std's hasher is not promised to stay the same between releases.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `n` values uniform in `[low, high)`, for an [`Init::Drawn`].
pub fn uniform(rng: &mut ChaCha8Rng, n: usize, [low, high]: [f32; 2]) -> Vec<f32> {
    const STEP: f32 = 1.0 / (1 << 24) as f32;
    // 24 bits: every value of the grid is exact in f32, and 1.0 is never reached.
    (0..n)
        .map(|_| low + (high - low) * ((rng.next_u32() >> 8) as f32 * STEP))
        .collect()
}

/// `n` indices below `bound`, for an [`Init::Drawn`], by Lemire's multiplication: the bias, at most bound / 2^32, does not matter here.
pub fn draw(rng: &mut ChaCha8Rng, n: usize, bound: usize) -> Vec<u32> {
    (0..n)
        .map(|_| ((u64::from(rng.next_u32()) * bound as u64) >> 32) as u32)
        .collect()
}

/// For each token `used` different experts in random order: the start of a Fisher-Yates shuffle.
fn draw_ids(rng: &mut ChaCha8Rng, tokens: usize, used: usize, experts: usize) -> Vec<i32> {
    let mut all: Vec<i32> = (0..experts).map(|id| id as i32).collect();
    let mut ids = Vec::with_capacity(tokens * used);
    for _ in 0..tokens {
        for place in 0..used {
            let pick = draw(rng, 1, experts - place)[0] as usize;
            all.swap(place, place + pick);
        }
        ids.extend_from_slice(&all[..used]);
    }
    ids
}

/// Ids of rows below `bound`: `len` a list.
fn draw_rows(
    rng: &mut ChaCha8Rng,
    [len, lists]: [usize; 2],
    bound: usize,
    distinct: bool,
) -> Vec<i32> {
    if distinct {
        return draw_ids(rng, lists, len, bound);
    }
    let rows = draw(rng, len * lists, bound);
    rows.into_iter().map(|row| row as i32).collect()
}

fn gather<T: Copy>(pool: &[T], picks: &[u32], row_len: usize) -> Vec<T> {
    picks
        .iter()
        .flat_map(|&pick| &pool[pick as usize * row_len..][..row_len])
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn generate(operand: &Operand, seed: u64, case: &str) -> OperandData {
        OperandData::generate(operand, seed, case).expect("a type that quantizes")
    }

    #[test]
    fn a_stream_belongs_to_seed_case_and_operand() {
        let a = Operand::new("a", DType::F32, [64, 1, 1, 1]);
        let b = Operand {
            name: "b",
            ..a.clone()
        };
        let base = generate(&a, 1, "ADD(ne=1)");
        assert_eq!(base.bytes(), generate(&a, 1, "ADD(ne=1)").bytes());
        for other in [
            generate(&a, 2, "ADD(ne=1)"),
            generate(&a, 1, "ADD(ne=2)"),
            generate(&b, 1, "ADD(ne=1)"),
        ] {
            assert_ne!(base.bytes(), other.bytes());
        }
    }

    /// The promise of the module's documentation: a seed keeps its meaning. If this fails, every printed seed is void.
    #[test]
    fn a_seed_keeps_its_meaning() {
        let a = Operand::new("a", DType::F32, [4, 1, 1, 1]);
        assert_eq!(
            generate(&a, 42, "OUT_PROD(m=1)").values(),
            [0.99289334, 0.71295214, 0.15669894, -0.31061518]
        );
    }

    #[test]
    fn a_token_names_different_experts_and_all_of_them_are_used() {
        let data = generate(&Operand::expert_ids("ids", [6, 200], 8), 1, "case");
        let ids = data.ids();
        assert_eq!((ids.len(), data.bytes().len()), (1200, 4800));
        for token in ids.chunks(6) {
            let different: BTreeSet<_> = token.iter().collect();
            assert_eq!(different.len(), 6, "{token:?}");
        }
        // Each in each place: 25 of 200 tokens on average.
        for place in 0..6 {
            for expert in 0..8 {
                let named = ids.chunks(6).filter(|token| token[place] == expert).count();
                assert!((8..50).contains(&named), "{expert} in {place}: {named}");
            }
        }
    }

    #[test]
    fn values_fill_the_range_and_stay_inside() {
        let wide = Operand::new("b", DType::F32, [4096, 1, 1, 1]).within(1.5e5);
        let data = generate(&wide, 0, "case");
        let max = data
            .values()
            .iter()
            .fold(0.0_f32, |max, v| max.max(v.abs()));
        assert!(
            (65504.0..1.5e5).contains(&max),
            "the largest of 4096 values should exceed half's range: {max}"
        );
    }

    #[test]
    fn values_are_those_of_the_stored_type() {
        let data = generate(&Operand::new("a", DType::F16, [32, 2, 1, 1]), 7, "case");
        assert_eq!(data.bytes().len(), 32 * 2 * 2);
        assert!(
            data.values()
                .iter()
                .all(|&v| half::f16::from_f32(v).to_f32() == v)
        );
    }

    /// Types of which blocks are drawn: their values fill the range as those of quantized types do.
    #[test]
    fn drawn_blocks_hold_finite_values_of_the_range() {
        for dtype in [DType::IQ1_S, DType::IQ1_M, DType::IQ2_XS, DType::IQ2_S] {
            let operand = Operand::new("a", dtype, [512, 8, 1, 1]).within(3.0);
            let data = generate(&operand, 5, "case");
            assert_eq!(data.bytes().len(), 16 * dtype.block_bytes());
            for block in data.values().chunks(256) {
                let largest = block.iter().fold(0.0_f32, |max, v| max.max(v.abs()));
                assert!((1.45..=3.0).contains(&largest), "{dtype:?}: {largest}");
                let power: f32 = block.iter().map(|v| v * v).sum();
                assert!(power > 256.0 * 0.01, "{dtype:?}: {power}");
            }
            let again = generate(&operand, 5, "case");
            assert_eq!(data.bytes(), again.bytes());
            assert_ne!(data.bytes(), generate(&operand, 6, "case").bytes());
        }
    }

    #[test]
    fn large_quantized_operands_draw_rows_from_a_pool() {
        let rows = 2 * POOL_ELEMENTS / 256;
        let operand = Operand::new("a", DType::Q8_0, [256, rows, 1, 1]);
        let data = generate(&operand, 3, "case");
        let row_bytes = 256 / 32 * 34;
        assert_eq!(data.bytes().len(), rows * row_bytes);
        let row = |index: usize| &data.values()[index * 256..][..256];
        let last = rows - 1;
        let stored =
            dequantize(DType::Q8_0, &data.bytes()[last * row_bytes..]).expect("whole blocks");
        assert_eq!(stored, row(last));
        assert_ne!(row(last), row(last - 1));
    }
}
