//! What ggml's row function makes of floats in IQ4_NL. `ggml_quantize_chunk`, which the other types are compared with, tries
//! more scales.

use ggml_rs::DType;

use crate::data::stored_as;

const BLOCK: usize = 32;

/// The 16 values of a block, before its scale.
const GRID: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Values as they come back from IQ4_NL.
///
/// # Errors
/// None; the scale is rounded to a half by ggml-rs, whose conversions can fail.
pub(super) fn stored(values: &[f32]) -> ggml_rs::Result<Vec<f32>> {
    let blocks = values.chunks(BLOCK).map(stored_block);
    Ok(blocks.collect::<ggml_rs::Result<Vec<_>>>()?.concat())
}

fn stored_block(block: &[f32]) -> ggml_rs::Result<Vec<f32>> {
    let largest = block.iter().fold(0.0_f32, |largest, &value| {
        if value.abs() > largest.abs() {
            value
        } else {
            largest
        }
    });
    let inverse = GRID[0] / largest;
    let picks: Vec<f32> = block.iter().map(|&x| nearest(inverse * x)).collect();
    // The scale with the least squared error, large values counting more.
    let (mut by_value, mut by_pick) = (0.0, 0.0);
    for (&x, &pick) in block.iter().zip(&picks) {
        by_value += x * x * pick * x;
        by_pick += x * x * pick * pick;
    }
    let scale = if by_pick > 0.0 {
        by_value / by_pick
    } else {
        0.0
    };
    let scale = stored_as(DType::F16, &[scale])?[0];
    Ok(picks.into_iter().map(|pick| scale * pick).collect())
}

fn nearest(x: f32) -> f32 {
    let closer = |a: &f32, b: &f32| (x - a).abs().total_cmp(&(x - b).abs());
    GRID.into_iter().min_by(closer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_grid_come_back() {
        let values: Vec<f32> = (0..BLOCK).map(|i| GRID[i % 16] * 0.5).collect();
        assert_eq!(stored(&values).expect("floats"), values);
        assert_eq!(stored(&[0.0; BLOCK]).expect("floats"), [0.0; BLOCK]);
        assert_eq!(nearest(-9.9), -10.0);
    }
}
