//! Blocks whose scale, kept as a half, overflowed: they read back as no numbers.

use super::{Quantizer, dequantize_checked};
use crate::error::{Call, Result};

/// Up to here no scale overflows: whatever the type, it is below four times the largest value of its block.
const SAFE: f32 = 16_384.0;

/// Blocks that are read back at a time.
const BLOCKS: usize = 256;

/// Fails for the first block that reads back as something else than numbers.
pub(super) fn check(call: Call, quantizer: &Quantizer, values: &[f32], bytes: &[u8]) -> Result<()> {
    if values.iter().all(|value| value.abs() <= SAFE) {
        return Ok(());
    }
    let (len, size) = (quantizer.dtype.block_len(), quantizer.dtype.block_bytes());
    for (part, bytes) in bytes.chunks(BLOCKS * size).enumerate() {
        let back = dequantize_checked(quantizer.dtype, bytes)?;
        if let Some(place) = back.iter().position(|value| !value.is_finite()) {
            let block = part * BLOCKS + place / len;
            return Err(call.param(too_large(quantizer, values, block * len)));
        }
    }
    Ok(())
}

/// Names the largest value of the block that begins at `start`, and how large it may be.
fn too_large(quantizer: &Quantizer, values: &[f32], start: usize) -> String {
    let dtype = quantizer.dtype;
    let block = &values[start..start + dtype.block_len()];
    let (place, value) = block
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
        .expect("a block has values");
    let (place, factor) = (start + place, too_large_by(quantizer, block, start));
    format!(
        "value {place} is {value}: the scale of its block of {dtype} is a half, at most 65504, and the block would read back as Inf \
         or NaN. Divided by {factor} it fits, up to {:e}: scale the values, or take a type of wider range, such as BF16",
        value.abs() / factor,
    )
}

/// The lowest power of 2 by which the block has to be divided to read back as numbers.
fn too_large_by(quantizer: &Quantizer, block: &[f32], start: usize) -> f32 {
    let fits = |power: i32| {
        let scaled: Vec<f32> = block
            .iter()
            .map(|value| value / 2_f32.powi(power))
            .collect();
        reads_back(quantizer, &scaled, start).unwrap_or(false)
    };
    // At the first it does not fit, at the last every block does.
    let (mut too_low, mut enough) = (0_i32, 127);
    while enough - too_low > 1 {
        let power = too_low.midpoint(enough);
        if fits(power) {
            enough = power;
        } else {
            too_low = power;
        }
    }
    2_f32.powi(enough)
}

/// Whether this block alone, at its place in the rows, reads back as numbers.
fn reads_back(quantizer: &Quantizer, block: &[f32], start: usize) -> Result<bool> {
    let (dtype, row) = (quantizer.dtype, start % quantizer.row_len);
    let alone = Quantizer {
        dtype,
        row_len: block.len(),
        importance: quantizer
            .importance
            .as_ref()
            .map(|importance| importance[row..row + block.len()].into()),
    };
    // Words, because ggml's blocks hold 16- and 32-bit numbers.
    let mut words = vec![0_u64; dtype.block_bytes().div_ceil(8)];
    let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..dtype.block_bytes()];
    alone.run(block, bytes)?;
    Ok(dequantize_checked(dtype, bytes)?
        .iter()
        .all(|back| back.is_finite()))
}
