//! Seeded test data.
//!
//! Every operand has a stream of its own, derived from the seed, the case string and the operand's name. So the data of
//! a case does not depend on which other cases run: a failure found in a full run is reproduced by `-o 'OP(...)'` with
//! the same seed. ChaCha8 and the conversion to float below are fixed, so a seed means the same data on every machine
//! and after every upgrade of the rand crates.

use ggml_rs::DType;
use ggml_rs::quantize::{dequantize, quantize};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// ggml's quantizers search for the best scale of every block, so a quantized operand with more elements than this repeats
/// rows: each is drawn at random from a pool of this size. Drawn, not taken in turn, so that a kernel that skips, repeats
/// or shifts rows still meets other values.
const POOL_ELEMENTS: usize = 1 << 22;

/// A leaf tensor of a case: what to allocate and what to fill it with.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// ggml's usual names: `a`, `b`, `src`.
    pub name: &'static str,
    /// The storage type.
    pub dtype: DType,
    /// The shape as stored, in ggml's ne order; views and transposes are part of the graph.
    pub ne: [usize; 4],
    /// Values are uniform in `[low, high)` before they are converted to the storage type.
    pub range: [f32; 2],
    /// Ids of so many experts instead of values: for each row (a token) different ones, drawn at random.
    pub experts: Option<usize>,
}

impl Operand {
    /// An operand with upstream's default values, uniform in `[-1, 1)`.
    #[must_use]
    pub fn new(name: &'static str, dtype: DType, ne: [usize; 4]) -> Self {
        Self {
            name,
            dtype,
            ne,
            range: [-1.0, 1.0],
            experts: None,
        }
    }

    /// Which `used` of `experts` experts each of `tokens` tokens uses.
    #[must_use]
    pub fn expert_ids(name: &'static str, [used, tokens]: [usize; 2], experts: usize) -> Self {
        Self {
            experts: Some(experts),
            ..Self::new(name, DType::I32, [used, tokens, 1, 1])
        }
    }

    /// The same operand with values in `[-bound, bound)`.
    #[must_use]
    pub fn within(self, bound: f32) -> Self {
        Self {
            range: [-bound, bound],
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
        if let Some(experts) = operand.experts {
            return Ok(Self::of_ids(&draw_ids(&mut rng, rows, row_len, experts)));
        }
        let pooled = operand.dtype.is_quantized() && row_len * rows > POOL_ELEMENTS;
        let distinct = if pooled {
            (POOL_ELEMENTS / row_len).max(1)
        } else {
            rows
        };

        let uniform = fill_uniform(&mut rng, distinct * row_len, operand.range);
        let bytes = quantize(operand.dtype, &uniform, row_len)?;
        // What the device sees is the converted value, so the reference must start from it as well.
        let values = if operand.dtype == DType::F32 {
            uniform
        } else {
            dequantize(operand.dtype, &bytes)?
        };
        if !pooled {
            return Ok(Self { bytes, values });
        }
        let picks = draw(&mut rng, rows, distinct);
        Ok(Self {
            bytes: gather(&bytes, &picks, bytes.len() / distinct),
            values: gather(&values, &picks, row_len),
        })
    }

    fn of_ids(ids: &[i32]) -> Self {
        Self {
            bytes: ids.iter().flat_map(|id| id.to_ne_bytes()).collect(),
            // Exact: no mixture has 2^24 experts.
            values: ids.iter().map(|&id| id as f32).collect(),
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

fn fill_uniform(rng: &mut impl RngCore, n: usize, [low, high]: [f32; 2]) -> Vec<f32> {
    const STEP: f32 = 1.0 / (1 << 24) as f32;
    // 24 bits: every value of the grid is exact in f32, and 1.0 is never reached.
    (0..n)
        .map(|_| low + (high - low) * ((rng.next_u32() >> 8) as f32 * STEP))
        .collect()
}

/// `n` indices below `bound`, by Lemire's multiplication: the bias, at most bound / 2^32, does not matter here.
fn draw(rng: &mut impl RngCore, n: usize, bound: usize) -> Vec<u32> {
    (0..n)
        .map(|_| ((u64::from(rng.next_u32()) * bound as u64) >> 32) as u32)
        .collect()
}

/// For each token `used` different experts in random order: the start of a Fisher-Yates shuffle.
fn draw_ids(rng: &mut impl RngCore, tokens: usize, used: usize, experts: usize) -> Vec<i32> {
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
