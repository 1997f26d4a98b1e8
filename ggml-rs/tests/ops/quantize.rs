//! Every type that f32 values convert to: as near as ggml's own test demands, with and without an importance, and no value that ends the
//! process, is lost without a word, or takes bits from elsewhere.

use ggml_rs::DType::{self, *};
use ggml_rs::quantize::{dequantize, quantize, quantize_with_importance};
use ggml_rs::{
    Builder, Device, Error, Graph, Input, Plan, PlanOptions, Result, RowIdsOptions, Tensor,
};

use crate::common::{self, values};

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
                            // NVFP4 ends at 2688; the scale of other blocks is a half.
                            let taken = if dtype == NVFP4 { 11 } else { 15 };
                            assert!(exponent > taken, "{dtype} refuses 2^{exponent}");
                            refused += 1;
                        }
                        Err(other) => panic!("{dtype} 2^{exponent} weight {weight}: {other}"),
                    }
                }
            }
        }
    }
    // Of all types of blocks but MXFP4, whose scale is no half.
    assert!(refused > 200, "{refused}");
}

/// An overflowing scale is a half that is infinite: no block that `quantize` returns has one.
#[test]
fn blocks_read_back_as_numbers_or_are_refused() {
    let mut refused = 0;
    for dtype in convertible().filter(|dtype| dtype.is_quantized()) {
        // 3.4e38, the largest, is 2^127 times nearly 2.
        for exponent in (12..32).chain([63, 100, 127]) {
            let scale = 2_f32.powi(exponent);
            for one_sign in [false, true] {
                let sign = |value: f32| if one_sign { value.abs() } else { value };
                let row: Vec<f32> = values(ROW, 5)
                    .into_iter()
                    .map(|v| sign(v) * scale)
                    .collect();
                match quantize(dtype, &row, ROW) {
                    Ok(bytes) => {
                        let back = dequantize(dtype, &bytes).unwrap();
                        assert!(
                            back.iter().all(|v| v.is_finite()),
                            "{dtype} at 2^{exponent}"
                        );
                    }
                    Err(Error::Param(_)) => refused += 1,
                    Err(other) => panic!("{dtype} at 2^{exponent}: {other}"),
                }
            }
        }
    }
    assert!(refused > 600, "{refused}");
}

/// Leaves `byte` in the stack below the caller's frame, where the next function's variables are.
#[inline(never)]
fn paint(byte: u8) {
    std::hint::black_box(&mut [byte; 1 << 16]);
}

/// An op that writes a row of blocks, and the inputs that it has beside the row, all bytes 0.
type Write =
    for<'g> fn(Builder<'g>, Tensor<'g>, DType) -> Result<(Tensor<'g>, Vec<(Input, usize)>)>;

const WRITES: [(&str, Write); 4] = [
    ("cast", |_, row, dtype| Ok((row.cast(dtype)?, Vec::new()))),
    ("cpy", |g, row, dtype| {
        let (to, input) = g.input("to", dtype, [ROW])?;
        Ok((row.cpy(to)?, vec![(input, dtype.row_bytes(ROW)?)]))
    }),
    ("set_rows", |g, row, dtype| {
        let (to, input) = g.input("to", dtype, [ROW])?;
        let (ids, id) = g.row_ids_with("ids", [1], RowIdsOptions::new(1).distinct())?;
        let inputs = vec![(input, dtype.row_bytes(ROW)?), (id, 4)];
        Ok((to.set_rows(row, ids)?, inputs))
    }),
    ("add", |g, row, dtype| {
        let (to, input) = g.input("to", dtype, [ROW])?;
        Ok((to.add(row)?, vec![(input, dtype.row_bytes(ROW)?)]))
    }),
];

/// The bytes that an op writes on one thread, which is this one, whose stack is painted.
fn written(dtype: DType, values: &[f32], byte: u8, write: Write) -> Vec<u8> {
    let (graph, (row, others, y)) = Graph::build(|g| {
        let (x, row) = g.input("x", F32, [ROW])?;
        let (y, others) = write(g, x, dtype)?;
        Ok((row, others, g.output("y", y)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(1).unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&row, values).unwrap();
    for (input, bytes) in &others {
        plan.set_bytes(input, &vec![0; *bytes]).unwrap();
    }
    paint(byte);
    plan.run(&mut backend).unwrap();
    plan.read_bytes(&y).unwrap()
}

/// A block of zeros cast to IQ4_NL held what was left on the stack.
#[test]
fn every_bit_that_the_cpu_quantizes_comes_from_the_values() {
    let rows: [fn(usize) -> f32; 7] = [
        |_| 0.0,
        |_| 1e-42,
        |_| -1e-20,
        |_| 3.0,
        |i| f32::from(i == 77) * 1e-5,
        |i| if i % 64 < 32 { 0.0 } else { (i as f32).sin() },
        |i| [f32::NAN, f32::INFINITY, -1.0, 0.0][i % 4],
    ];
    let mut types = 0;
    for dtype in convertible().filter(|dtype| cpu_quantizes(*dtype)) {
        for (name, write) in WRITES {
            for row in rows {
                let row: Vec<f32> = (0..ROW).map(row).collect();
                let [one, other] = [0x55, 0xaa].map(|byte| written(dtype, &row, byte, write));
                assert!(one == other, "{name} to {dtype} of {row:?}");
            }
        }
        types += 1;
    }
    assert_eq!(types, 18);
}

/// The exponent of such a block is below 0: converted to a byte it was 255 on x86-64, whose scale is so large that all values were 0.
#[test]
fn tiny_blocks_of_mxfp4_have_the_lowest_exponent() {
    for tiny in [2_f32.powi(-126), 2_f32.powi(-127), 3.0 * 2_f32.powi(-128)] {
        let bytes = quantize(MXFP4, &[tiny; 32], 32).unwrap();
        assert_eq!(bytes[0], 0, "{tiny:e}");
        assert_eq!(dequantize(MXFP4, &bytes).unwrap(), [tiny; 32]);
    }
}

/// Those that search a grid have no row function on the CPU.
fn cpu_quantizes(dtype: DType) -> bool {
    let searched = [IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS];
    dtype.is_quantized() && !searched.contains(&dtype)
}

/// In C the conversion of what no i32 holds is undefined.
#[test]
fn casts_to_i32_take_the_nearest_and_0_for_nan() {
    let cases = [
        (0.0, 0),
        (1.9, 1),
        (-1.9, -1),
        (f32::NAN, 0),
        (-f32::NAN, 0),
        (f32::INFINITY, i32::MAX),
        (f32::NEG_INFINITY, i32::MIN),
        (1e30, i32::MAX),
        (-1e30, i32::MIN),
        (2_147_483_520.0, 2_147_483_520),
        (2_147_483_648.0, i32::MAX),
        (-2_147_483_648.0, i32::MIN),
        (-2_147_483_904.0, i32::MIN),
        (1e-40, 0),
    ];
    let values: Vec<f32> = cases.map(|case| case.0).repeat(2);
    type Cast = for<'g> fn(Builder<'g>, Tensor<'g>) -> Result<(Tensor<'g>, Option<Input>)>;
    let casts: [(&str, bool, Cast); 3] = [
        ("cast", false, |_, x| Ok((x.cast(I32)?, None))),
        ("cast of a transposed", true, |_, x| {
            Ok((x.transpose()?.cast(I32)?, None))
        }),
        ("cpy", false, |g, x| {
            let (to, input) = g.input("to", I32, x.shape())?;
            Ok((x.cpy(to)?, Some(input)))
        }),
    ];
    for device in common::devices() {
        for (name, transposed, cast) in casts {
            let (graph, (x, to, y)) = Graph::build(|g| {
                let (x_tensor, x) = g.input("x", F32, [cases.len(), 2])?;
                let (y, to) = cast(g, x_tensor)?;
                Ok((x, to, g.output("y", y)?))
            })
            .unwrap();
            let mut backend = device.open().unwrap();
            let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
            plan.set_f32(&x, &values).unwrap();
            if let Some(to) = to {
                plan.set_i32(&to, &vec![7; values.len()]).unwrap();
            }
            plan.run(&mut backend).unwrap();
            let bytes = plan.read_bytes(&y).unwrap();
            let got: Vec<i32> = bytes
                .chunks(4)
                .map(|value| i32::from_ne_bytes(value.try_into().unwrap()))
                .collect();
            let expected: Vec<i32> = if transposed {
                cases.iter().flat_map(|case| [case.1; 2]).collect()
            } else {
                cases.map(|case| case.1).repeat(2)
            };
            assert_eq!(got, expected, "{name} on {}", device.name());
        }
    }
}
