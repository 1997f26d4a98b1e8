//! How large activations may be: MUL_MAT and MUL_MAT_ID of every weight type on the CPU, at the limit that docs/precision.md states,
//! from both sides.

use ggml_rs::DType::{self, *};
use ggml_rs::check::reference::{self, Values};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{Device, Graph, Placement, Plan, PlanOptions, Shape};

use super::{QUANTIZED_B, check};

use crate::common::{Operand, run_on_cpu, values};

/// Of which a half is the scale of 32 activations, each at most 127 scales.
const LARGEST_HALF: f32 = 65504.0;

/// Whose activations are rounded to blocks of 32 with such a scale.
const BLOCKS_OF_32: [DType; 10] = [
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0,
];

/// Whose activations are rounded to blocks of 256 with a scale in float.
const BLOCKS_OF_256: [DType; 15] = [
    Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S,
    TQ1_0, TQ2_0,
];

const K: usize = 256;

fn operand(dtype: DType, dims: &[usize], values: Vec<f32>) -> Operand {
    let shape = Shape::new(dims).unwrap();
    Operand {
        dtype,
        shape,
        values,
    }
}

/// As an expert among others, which must give what MUL_MAT gives.
fn through_an_expert(a: &Operand, b: &Operand) -> Vec<f32> {
    let ([k, m, ..], n) = (a.shape.ne(), b.shape.ne()[1]);
    let (graph, (inputs, product)) = Graph::build(|g| {
        let (experts, a) = g.input("a", a.dtype, [k, m, 2])?;
        let (activations, b) = g.input("b", F32, [k, 1, n])?;
        let (ids, id) = g.expert_ids("ids", 1, n, 2)?;
        Ok((
            (a, b, id),
            g.output("product", experts.mul_mat_id(activations, ids)?)?,
        ))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let twice = [&a.values[..], &a.values].concat();
    plan.set_f32(&inputs.0, &twice).unwrap();
    plan.set_f32(&inputs.1, &b.values).unwrap();
    plan.set_i32(&inputs.2, &vec![1; n]).unwrap();
    plan.run(&mut backend).unwrap();
    plan.read_f32(&product).unwrap()
}

/// Both ops' results, which are one.
fn product(a: &Operand, b: &Operand) -> Vec<f32> {
    let product = run_on_cpu(&[a, b], Placement::Pooled, |_, x| x[0].mul_mat(x[1])).unwrap();
    let expert = through_an_expert(a, b);
    let close = |(p, e): (&f32, &f32)| (p - e).abs() <= 1e-5 * p.abs() || p.is_nan() && e.is_nan();
    assert!(
        product
            .iter()
            .zip(&expert)
            .all(|pair| close(pair) || pair.0 == pair.1),
        "{}: {product:?} {expert:?}",
        a.dtype
    );
    product
}

/// Thirty-two equal activations, against two levels of a block in turn. The scale of the activations is rounded to a half.
#[test]
fn sums_of_activations_exceed_half() {
    for (dtype, levels, right) in [
        (Q4_1, [1.0, 16.0], 557_056.0),
        (Q4_1, [0.0, 15.0], 491_520.0),
        (Q5_1, [1.0, 32.0], 1_081_344.0),
        (Q4_1, [-16.0, -1.0], -557_056.0),
        (Q4_0, [-8.0, 7.0], -32_768.0_f32),
    ] {
        for (rows, n) in [(1, 1), (5, 33)] {
            let a = operand(dtype, &[32, rows], levels.repeat(16 * rows));
            let exact = dequantize(dtype, &quantize(dtype, &a.values, 32).unwrap()).unwrap();
            assert_eq!(exact, a.values, "{dtype} holds the levels");
            let b = operand(F32, &[32, n], vec![2048.0; 32 * n]);
            for got in product(&a, &b) {
                let error = f64::from((got - right) / right).abs();
                assert!(
                    error <= 2f64.powi(-11),
                    "{dtype} {levels:?}: {got}, not {right}"
                );
            }
        }
    }
}

/// Weights and activations of one sign each, so that sums of a block are as large as they can be, and of both.
fn operands(dtype: DType, most: f32, one_sign: bool) -> (Operand, Operand) {
    let sign = |value: f32| if one_sign { value.abs() } else { value };
    let mut a: Vec<f32> = values(K * 7, 1).into_iter().map(sign).collect();
    // Results stay floats however large the activations are.
    a.iter_mut().for_each(|value| *value *= 1.0 / 64.0);
    let mut b: Vec<f32> = values(K * 3, 2).into_iter().map(sign).collect();
    for block in b.chunks_mut(32) {
        block[9] = 1.0;
        block.iter_mut().for_each(|value| *value *= most);
    }
    (operand(dtype, &[K, 7], a), operand(F32, &[K, 3], b))
}

fn is_right_up_to(dtype: DType, most: f32) {
    for one_sign in [false, true] {
        let (a, b) = operands(dtype, most, one_sign);
        let weights = a.rounded();
        let expected = reference::mul_mat(
            Values::contiguous(&weights, a.shape.ne()).unwrap(),
            Values::contiguous(&b.values, b.shape.ne()).unwrap(),
        );
        let got = product(&a, &b);
        let case = format!("{dtype} with activations of {most:e}, one sign: {one_sign}");
        check(&expected.unwrap(), &got, QUANTIZED_B, &case);
    }
}

fn is_no_number_at(dtype: DType, most: f32) {
    let (a, b) = operands(dtype, most, true);
    let got = product(&a, &b);
    assert!(
        got.iter().all(|value| !value.is_finite()),
        "{dtype} takes {most:e}: docs/precision.md may promise more, and this test may ask for it"
    );
}

#[test]
fn activations_are_right_up_to_the_stated_limit_and_no_number_beyond() {
    let mut types = vec![F32, F16, BF16];
    for dtype in BLOCKS_OF_32 {
        is_right_up_to(dtype, 1.0);
        is_right_up_to(dtype, 127.0 * LARGEST_HALF);
        // From here on the scale is rounded to infinity.
        is_no_number_at(dtype, 127.0 * 65520.0);
        types.push(dtype);
    }
    for dtype in BLOCKS_OF_256 {
        is_right_up_to(dtype, 1.0);
        is_right_up_to(dtype, 1e37);
        types.push(dtype);
    }
    is_right_up_to(F16, LARGEST_HALF);
    is_no_number_at(F16, 65520.0);
    is_right_up_to(BF16, 1e37);
    is_right_up_to(F32, 1e37);
    let every = DType::ALL
        .into_iter()
        .filter(|dtype| dtype.dequantizes() || matches!(dtype, F32 | F16 | BF16));
    for dtype in every {
        assert!(types.contains(&dtype), "{dtype} has no limit here");
    }
}

/// The other end: a scale below 2^-25 is no half, and 32 activations with it are 0. From 2^-14 on a scale has all of its bits.
#[test]
fn activations_are_right_down_to_the_stated_limit_and_zero_below() {
    for dtype in BLOCKS_OF_32 {
        is_right_up_to(dtype, 127.0 * 2f32.powi(-14));
        let (a, b) = operands(dtype, 126.0 * 2f32.powi(-25), true);
        let got = product(&a, &b);
        assert!(got.iter().all(|&value| value == 0.0), "{dtype}: {got:?}");
    }
    for dtype in BLOCKS_OF_256 {
        is_right_up_to(dtype, 1e-30);
    }
}

/// The level is one for all of a process: this machine's best is what the tests above run on.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "native")))]
#[test]
fn the_lowest_level_keeps_the_limits_too() {
    const LEVEL: &str = "GGML_RS_CPU_LEVEL";
    if std::env::var_os(LEVEL).is_some() {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["products::range::", "--test-threads=1"])
        .env(LEVEL, "v2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("4 passed"),
        "{said}"
    );
}
