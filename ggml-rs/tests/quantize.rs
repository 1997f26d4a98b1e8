//! Every type that f32 values convert to: as near as ggml's own test demands, with and without an importance, and no value that ends the
//! process.

mod common;

use common::values;
use ggml_rs::DType::{self, *};
use ggml_rs::Error;
use ggml_rs::quantize::{dequantize, quantize, quantize_with_importance};

const ROW: usize = 256;

/// Every type that f32 values convert to and back.
fn convertible() -> impl Iterator<Item = DType> {
    let halves = |dtype: DType| matches!(dtype, F32 | F16 | BF16);
    DType::ALL
        .into_iter()
        .filter(move |dtype| dtype.dequantizes() || halves(*dtype))
}

/// What ggml's test-quantize-fns allows: the square root of the sum of squares, over the count. It leaves out the four types whose
/// blocks only ggml_quantize_chunk makes; their bounds are ours, a little above what was measured.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        Q1_0 => 0.025,
        TQ1_0 | TQ2_0 | Q2_0 => 0.01,
        Q2_K | IQ2_S => 0.0075,
        Q3_K | IQ3_S => 0.0040,
        IQ3_XXS => 0.0050,
        NVFP4 => 0.0030,
        IQ2_XXS | IQ2_XS => 0.0075,
        IQ1_S | IQ1_M => 0.0125,
        _ => 0.002,
    }
}

#[test]
fn every_type_is_as_near_as_ggml_demands() {
    let values: Vec<f32> = (0..4096).map(|i| 0.1 + 2.0 * (i as f32).cos()).collect();
    let mut count = 0;
    for dtype in convertible() {
        let back = dequantize(dtype, &quantize(dtype, &values, ROW).unwrap()).unwrap();
        let squares = values
            .iter()
            .zip(&back)
            .map(|(a, b)| f64::from(a - b).powi(2));
        let error = squares.sum::<f64>().sqrt() / values.len() as f64;
        println!("{dtype}: {error:.5} of {}", tolerance(dtype));
        assert!(error < tolerance(dtype), "{dtype}: {error}");
        count += 1;
    }
    assert_eq!(count, 28);
}

/// Squares of errors, weighted.
fn weighted(values: &[f32], back: &[f32], importance: &[f32]) -> f64 {
    let weights = importance.iter().cycle();
    let errors = values.iter().zip(back).zip(weights);
    errors
        .map(|((a, b), w)| f64::from(a - b).powi(2) * f64::from(*w))
        .sum()
}

#[test]
fn what_matters_gets_nearer() {
    let values = values(16 * ROW, 3);
    let importance: Vec<f32> = (0..ROW)
        .map(|i| if i % 8 < 2 { 1.0 } else { 0.01 })
        .collect();
    let mut better = 0;
    for dtype in convertible() {
        let plain = quantize(dtype, &values, ROW).unwrap();
        let chosen = quantize_with_importance(dtype, &values, ROW, &importance).unwrap();
        let error =
            |bytes: &[u8]| weighted(&values, &dequantize(dtype, bytes).unwrap(), &importance);
        let (plain_error, chosen_error) = (error(&plain), error(&chosen));
        if chosen != plain {
            assert!(
                chosen_error < plain_error,
                "{dtype}: {chosen_error} {plain_error}"
            );
            better += 1;
        }
    }
    println!("{better} types use an importance");
    assert!(better >= 15, "{better}");
}

#[test]
fn an_importance_that_is_none_is_refused() {
    let values = values(ROW, 1);
    let mut importance = vec![1.0; ROW];
    let refused = |importance: &[f32]| {
        let result = quantize_with_importance(IQ2_XXS, &values, ROW, importance);
        matches!(result, Err(Error::Param(_)))
    };
    assert!(!refused(&importance));
    assert!(refused(&importance[1..]));
    for wrong in [0.0, -1.0, 0.9e-10, 1.1e10, f32::NAN, f32::INFINITY] {
        importance[7] = wrong;
        assert!(refused(&importance), "{wrong}");
    }
}

/// ggml searches grids for some types, and asserts that it found a point: sums that overflow find none.
#[test]
fn no_value_and_no_importance_reaches_an_assertion() {
    let shapes: [fn(usize) -> f32; 4] = [
        |i| (i as f32).sin(),
        |_| 1.0,
        |i| if i == 77 { 1.0 } else { 0.0 },
        |i| if i % 2 == 0 { 1.0 } else { -1e-3 },
    ];
    let mut refused = 0;
    for dtype in convertible() {
        for exponent in [-149, -126, -60, -24, 0, 15, 24, 25, 26, 63, 127] {
            for shape in shapes {
                let scale = 2_f32.powi(exponent);
                let values: Vec<f32> = (0..ROW).map(|i| shape(i) * scale).collect();
                for weight in [1e-10, 1.0, 1e10] {
                    let importance = vec![weight; ROW];
                    let result = quantize_with_importance(dtype, &values, ROW, &importance);
                    match result {
                        Ok(bytes) => assert!(dequantize(dtype, &bytes).is_ok()),
                        Err(Error::Param(_)) => {
                            assert!(exponent > 24, "{dtype} refuses 2^{exponent}");
                            refused += 1;
                        }
                        Err(other) => panic!("{dtype} 2^{exponent} weight {weight}: {other}"),
                    }
                }
            }
        }
    }
    // Of seven types.
    assert!(refused > 200, "{refused}");
}
