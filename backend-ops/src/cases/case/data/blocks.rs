//! Quantized blocks drawn as bits.
//!
//! Before it quantizes to one of these types ggml sorts the grid of the type's values around each of some ten thousand points,
//! which takes a process seconds: 9 for IQ1_S and IQ1_M, 4 for IQ2_S, 2 for IQ2_XS. Every pattern of bits is a block of theirs,
//! so blocks are drawn instead, which meets every entry of the grid, sign and scale, and not only those that a quantizer
//! prefers. What a block is worth is asked of ggml, as for all types.

use ggml_rs::DType;
use ggml_rs::quantize::{dequantize, quantize};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// Where a block keeps its scale, a half.
#[derive(Clone, Copy)]
enum Scale {
    /// In its first two bytes.
    First,
    /// In the upper four bits of its last four 16-bit words.
    Spread,
}

/// The scale's place, for types that are drawn.
fn scale_of(dtype: DType) -> Option<Scale> {
    match dtype {
        DType::IQ1_S | DType::IQ2_XS | DType::IQ2_S => Some(Scale::First),
        DType::IQ1_M => Some(Scale::Spread),
        _ => None,
    }
}

/// `n` values of a type in `[-bound, bound]`; `None` for types whose values are quantized.
pub(super) fn draw(
    rng: &mut ChaCha8Rng,
    dtype: DType,
    n: usize,
    bound: f32,
) -> ggml_rs::Result<Option<Vec<u8>>> {
    let Some(scale) = scale_of(dtype) else {
        return Ok(None);
    };
    let block_len = dtype.block_len();
    let block_bytes = dtype.block_bytes();
    let mut bytes = vec![0; n / block_len * block_bytes];
    rng.fill_bytes(&mut bytes);
    for block in bytes.chunks_mut(block_bytes) {
        scale.set(block, half(1.0)?);
    }
    let unscaled = dequantize(dtype, &bytes)?;
    let blocks = bytes.chunks_mut(block_bytes);
    for (block, values) in blocks.zip(unscaled.chunks(block_len)) {
        let largest = values
            .iter()
            .fold(0.0_f32, |max, value| max.max(value.abs()));
        // A share of the bound, below it by more than a half's rounding.
        let [share] = super::uniform(rng, 1, [0.5, 0.999])[..] else {
            unreachable!("one was asked for")
        };
        scale.set(block, half(share * bound / largest)?);
    }
    Ok(Some(bytes))
}

fn half(value: f32) -> ggml_rs::Result<[u8; 2]> {
    let bytes = quantize(DType::F16, &[value], 1)?;
    Ok([bytes[0], bytes[1]])
}

impl Scale {
    fn set(self, block: &mut [u8], half: [u8; 2]) {
        match self {
            Self::First => block[..2].copy_from_slice(&half),
            Self::Spread => {
                let bits = u16::from_le_bytes(half);
                let words = block.len() - 8;
                for (i, word) in block[words..].chunks_mut(2).enumerate() {
                    let nibble = (bits >> (4 * i) & 0xf) as u8;
                    word[1] = word[1] & 0x0f | nibble << 4;
                }
            }
        }
    }
}
