//! How far from the exact result a right one may be.
//!
//! Maxima and minima are exact. A sum is added in F32 (on the CPU in F64, each row's sum rounded to F32) and then rounded
//! to its type: half a unit in the last place, and what the longest chain of F32 roundings can have lost.

use ggml_rs::DType;

use crate::data::Case;
use crate::variant::{Axis, Op, Variant};

/// Half a unit in the last place of F32, relative; and 1% for terms of second order.
const ROUNDING: f64 = 1.01 / (1u64 << 24) as f64;

pub fn allowed(variant: &Variant, case: &Case, part: &[f32], exact: f64) -> f64 {
    let magnitudes: f64 = part.iter().map(|&x| f64::from(x).abs()).sum();
    let lost = roundings(variant, case) as f64 * ROUNDING * magnitudes;
    let lost = match variant.op {
        Op::Max | Op::Min => return 0.0,
        Op::Sum => lost,
        Op::Mean => lost / part.len() as f64,
    };
    if variant.dtype == DType::F32 {
        lost
    } else {
        ulp(variant.dtype, exact.abs() + lost) / 2.0 + lost
    }
}

/// The longest chain of roundings that an element goes through.
fn roundings(variant: &Variant, case: &Case) -> usize {
    let steps: &[usize] = match variant.axis {
        Axis::Whole if case.rows > 1 && case.row > 1 => &[case.row, case.rows],
        Axis::Whole => &[case.row * case.rows],
        Axis::Rows => &[case.row],
    };
    let chain = |&len: &usize| match variant.device.as_str() {
        "CPU" => 1,
        // 1024 threads at most; two rounds of 32 lanes, five additions each; four floats of a vector.
        _ => len.div_ceil(1024) + 13,
    };
    let division = usize::from(variant.op == Op::Mean);
    steps.iter().map(|len| chain(len) + division).sum()
}

/// The unit in the last place of a value of this type.
pub fn ulp(dtype: DType, value: f64) -> f64 {
    let (digits, lowest) = match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        _ => (23, -126),
    };
    let exponent = (value.abs().log2().floor() as i32).max(lowest);
    2f64.powi(exponent - digits)
}
