//! Arithmetic and functions of one element, against formulas in f64, in every layout that kernels take and in place.

use std::f64::consts::PI;

use ggml_rs::DType::{self, BF16, F16, F32, I32, Q8_0};
use ggml_rs::graph::GluOp;
use ggml_rs::{Result, Tensor};

use crate::common;
use crate::common::forward::{Case, Given, index, places, rounding};

type Op = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;
type Op2 = for<'g> fn(Tensor<'g>, Tensor<'g>) -> Result<Tensor<'g>>;

/// A function of one element.
struct Function {
    name: &'static str,
    op: Op,
    /// The same, written over its operand.
    over: Option<Op>,
    reference: fn(f64) -> f64,
    /// How far the CPU's kernel is off on its own.
    error: f64,
    domain: fn(f32) -> f32,
    types: &'static [DType],
}

const ALL: fn(f32) -> f32 = |x| x;
const FLOATS: &[DType] = &[F32, F16, BF16];
/// The CPU looks these up for operands rounded to f16.
const LOOKED_UP: f64 = 4e-3;

const fn function(name: &'static str, op: Op, over: Op, reference: fn(f64) -> f64) -> Function {
    Function {
        name,
        op,
        over: Some(over),
        reference,
        error: 0.0,
        domain: ALL,
        types: FLOATS,
    }
}

#[rustfmt::skip]
fn functions() -> Vec<Function> {
    vec![
        function("abs", |a| a.abs(), |a| a.abs_inplace(), f64::abs),
        function("sgn", |a| a.sgn(), |a| a.sgn_inplace(), |x| if x == 0.0 { 0.0 } else { x.signum() }),
        function("neg", |a| a.neg(), |a| a.neg_inplace(), |x| -x),
        function("step", |a| a.step(), |a| a.step_inplace(), |x| f64::from(u8::from(x > 0.0))),
        function("tanh", |a| a.tanh(), |a| a.tanh_inplace(), f64::tanh),
        function("elu", |a| a.elu(), |a| a.elu_inplace(), |x| if x > 0.0 { x } else { x.exp_m1() }),
        function("relu", |a| a.relu(), |a| a.relu_inplace(), |x| x.max(0.0)),
        function("sigmoid", |a| a.sigmoid(), |a| a.sigmoid_inplace(), sigmoid),
        Function { error: LOOKED_UP, ..function("gelu", |a| a.gelu(), |a| a.gelu_inplace(), gelu) },
        function("gelu_erf", |a| a.gelu_erf(), |a| a.gelu_erf_inplace(), gelu_erf),
        Function { error: LOOKED_UP, ..function("gelu_quick", |a| a.gelu_quick(), |a| a.gelu_quick_inplace(), gelu_quick) },
        function("silu", |a| a.silu(), |a| a.silu_inplace(), silu),
        Function { over: None, ..function("hardswish", |a| a.hardswish(), ok, |x| x * hard(x)) },
        Function { over: None, ..function("hardsigmoid", |a| a.hardsigmoid(), ok, hard) },
        function("exp", |a| a.exp(), |a| a.exp_inplace(), f64::exp),
        function("expm1", |a| a.expm1(), |a| a.expm1_inplace(), f64::exp_m1),
        function("softplus", |a| a.softplus(), |a| a.softplus_inplace(), |x| x.exp().ln_1p()),
        function("floor", |a| a.floor(), |a| a.floor_inplace(), f64::floor),
        function("ceil", |a| a.ceil(), |a| a.ceil_inplace(), f64::ceil),
        function("round", |a| a.round(), |a| a.round_inplace(), f64::round),
        function("trunc", |a| a.trunc(), |a| a.trunc_inplace(), f64::trunc),
        function("sqr", |a| a.sqr(), |a| a.sqr_inplace(), |x| x * x),
        Function { domain: f32::abs, ..function("sqrt", |a| a.sqrt(), |a| a.sqrt_inplace(), f64::sqrt) },
        Function { domain: |x| x.abs() + 0.5, ..function("log", |a| a.log(), |a| a.log_inplace(), f64::ln) },
        function("sin", |a| a.sin(), |a| a.sin_inplace(), f64::sin),
        function("cos", |a| a.cos(), |a| a.cos_inplace(), f64::cos),
        Function { types: &[F32, F16],
            ..function("leaky_relu", |a| a.leaky_relu(0.1), |a| a.leaky_relu_inplace(0.1), |x| if x > 0.0 { x } else { f64::from(0.1f32) * x }) },
        Function { types: &[F32, F16],
            ..function("clamp", |a| a.clamp(-0.5, 1.5), |a| a.clamp_inplace(-0.5, 1.5), |x| x.clamp(-0.5, 1.5)) },
        Function { over: None, ..function("xielu", |a| a.xielu(0.3, 0.7, 0.5, -1e-6), ok, xielu) },
    ]
}

fn ok(a: Tensor<'_>) -> Result<Tensor<'_>> {
    Ok(a)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn hard(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * x * (1.0 + 0.044715 * x * x)).tanh())
}

fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / 2f64.sqrt()))
}

/// The series of the error function, which is exact enough for the small operands of this test.
fn erf(x: f64) -> f64 {
    assert!(x.abs() < 5.0);
    let (mut sum, mut term) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / PI.sqrt() * sum
}

fn xielu(x: f64) -> f64 {
    let [n, p, beta, eps] = [0.3f32, 0.7, 0.5, -1e-6].map(f64::from);
    let (n, p) = (beta + n.exp().ln_1p(), p.exp().ln_1p());
    if x > 0.0 {
        p * x * x + beta * x
    } else {
        n * (x.min(eps).exp_m1() - x) + beta * x
    }
}

/// Operands on both sides of every kink.
fn operand(dtype: DType, dims: &[usize], domain: fn(f32) -> f32) -> Given {
    let len = dims.iter().product();
    let special = [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 3.0, -3.0];
    let random = common::values(len, 7).into_iter().map(|x| 5.0 * x);
    let values = special.into_iter().chain(random).take(len).map(domain);
    Given::float(dtype, dims, values.collect())
}

/// The window of rows of 5 in rows of 8 that functions are applied to, with gaps between its rows.
fn window(a: Tensor<'_>) -> Result<Tensor<'_>> {
    let [nb0, nb1, nb2, nb3] = a.strides();
    a.view([5, 4, 3], [nb1, nb2, nb3], 2 * nb0)
}

const WHOLE: [usize; 4] = [8, 4, 3, 1];

fn in_window(place: [usize; 4]) -> bool {
    (2..7).contains(&place[0])
}

#[test]
fn functions_of_one_element() {
    for function in functions() {
        for &dtype in function.types {
            let given = || operand(dtype, &WHOLE, function.domain);
            let values = given().values();
            let tolerance = function.error.max(2.0 * rounding(dtype));
            let metal = dtype != BF16;
            Case {
                name: format!("{} of {dtype}", function.name),
                given: vec![given()],

                expected: values.iter().map(|&x| (function.reference)(x)).collect(),
                tolerance,
                metal,
            }
            .check(move |x| (function.op)(x[0]));
            let inside = places(WHOLE).filter(|&i| in_window(i));
            let gaps: Vec<_> = inside
                .map(|i| (function.reference)(values[index(WHOLE, i)]))
                .collect();
            Case {
                name: format!("{} of {dtype} with gaps between rows", function.name),
                given: vec![given()],

                expected: gaps,
                tolerance,
                metal,
            }
            .check(move |x| (function.op)(window(x[0])?));
            if let Some(over) = function.over {
                check_in_place(&function, over, given(), tolerance);
            }
        }
    }
}

/// Writes over the window, and reads the tensor that the window is cut from.
fn check_in_place(function: &Function, over: Op, given: Given, tolerance: f64) {
    let metal = given.dtype() != BF16;
    let values = given.values();
    let written = |i: [usize; 4]| {
        let x = values[index(WHOLE, i)];
        if in_window(i) {
            (function.reference)(x)
        } else {
            x
        }
    };
    let (expected, result) = (
        places(WHOLE).map(written),
        places(WHOLE).filter(|&i| in_window(i)),
    );
    Case {
        name: format!("{}_inplace of {}", function.name, given.dtype()),
        expected: expected.chain(result.map(written)).collect(),
        given: vec![given],

        tolerance,
        metal,
    }
    .check(move |x| {
        let written = over(window(x[0])?)?.cont_reshaped([60])?;
        x[0].reshape([96])?.concat(written, 0)
    });
}

/// An operation of two elements.
struct Binary {
    name: &'static str,
    op: Op2,
    over: Op2,
    reference: fn(f64, f64) -> f64,
}

#[rustfmt::skip]
const BINARY: [Binary; 4] = [
    Binary { name: "add", op: |a, b| a.add(b), over: |a, b| a.add_inplace(b), reference: |a, b| a + b },
    Binary { name: "sub", op: |a, b| a.sub(b), over: |a, b| a.sub_inplace(b), reference: |a, b| a - b },
    Binary { name: "mul", op: |a, b| a.mul(b), over: |a, b| a.mul_inplace(b), reference: |a, b| a * b },
    Binary { name: "div", op: |a, b| a.div(b), over: |a, b| a.div_inplace(b), reference: |a, b| a / b },
];

/// The second operand of a binary op: away from 0.
fn divisor(dtype: DType, dims: [usize; 4]) -> Given {
    let values = common::values(dims.iter().product(), 9);
    Given::float(dtype, &dims, values.into_iter().map(|x| x + 1.5).collect())
}

#[test]
fn arithmetic_repeats_its_second_operand() {
    let ne = [6, 4, 2, 3];
    for binary in BINARY {
        for (a_type, b_type) in [
            (F32, F32),
            (F16, F16),
            (BF16, BF16),
            (F16, F32),
            (BF16, F32),
        ] {
            for b_ne in [ne, [6, 1, 1, 1], [1, 4, 1, 3], [3, 2, 2, 1], [1; 4]] {
                let given = || vec![Given::random(a_type, &ne, 8, 2.0), divisor(b_type, b_ne)];
                let (a, b) = (given()[0].values(), given()[1].values());
                let repeated = |i: [usize; 4]| std::array::from_fn(|d| i[d] % b_ne[d]);
                let result = |i| (binary.reference)(a[index(ne, i)], b[index(b_ne, repeated(i))]);
                let expected: Vec<_> = places(ne).map(result).collect();
                let metal = a_type == b_type && a_type != BF16;
                for (over, op) in [("", binary.op), ("_inplace", binary.over)] {
                    Case {
                        name: format!("{}{over} of {a_type} and {b_type} {b_ne:?}", binary.name),
                        given: given(),

                        expected: expected.clone(),
                        tolerance: rounding(a_type),
                        metal,
                    }
                    .check(move |x| op(x[0], x[1]));
                }
            }
        }
    }
}

#[test]
fn a_tensor_is_added_to_itself_in_place() {
    let given = Given::random(F32, &[6, 4], 3, 2.0);
    Case {
        name: "add_inplace of itself".to_owned(),
        expected: given.values().iter().map(|x| 2.0 * x).collect(),
        given: vec![given],

        tolerance: 0.0,
        metal: true,
    }
    .check(|x| x[0].add_inplace(x[0]));
}

/// The CPU computes the norm and the product in one pass; the norm's operand is the one that is written over.
#[test]
fn a_product_with_a_norm_in_place() {
    let given = Given::random(F32, &[8, 4], 3, 2.0);
    let values = given.values();
    let rows = values.chunks(8).flat_map(|row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / 8.0;
        row.iter().map(move |x| x * x / (mean + 1e-6).sqrt())
    });
    Case {
        name: "mul_inplace with rms_norm".to_owned(),
        expected: rows.collect(),
        given: vec![given],

        tolerance: 4e-6,
        metal: true,
    }
    .check(|x| x[0].mul_inplace(x[0].rms_norm(1e-6)?));
}

#[test]
fn sums_of_other_types() {
    let sum = |a: &Given, b: &Given| -> Vec<f64> {
        let (a, b) = (a.values(), b.values());
        a.iter().zip(b.iter().cycle()).map(|(a, b)| a + b).collect()
    };
    for (a_type, dtype, b_dims) in [
        (F16, F32, &[64, 1][..]),
        (BF16, F32, &[64, 1]),
        (Q8_0, F32, &[64, 3]),
        (Q8_0, Q8_0, &[64, 3]),
    ] {
        let (a, b) = (
            Given::random(a_type, &[64, 3], 1, 1.0),
            Given::random(F32, b_dims, 2, 1.0),
        );
        Case {
            name: format!("add_cast of {a_type} to {dtype}"),
            expected: sum(&a, &b),
            given: vec![a, b],

            tolerance: if dtype == Q8_0 { 1e-2 } else { 1e-6 },
            metal: false,
        }
        .check(move |x| x[0].add_cast(x[1], dtype));
    }
    let (a, b) = (
        Given::random(Q8_0, &[64, 3], 1, 1.0),
        Given::random(F32, &[64, 3], 2, 1.0),
    );
    Case {
        name: "add_inplace to q8_0".to_owned(),
        expected: sum(&a, &b),
        given: vec![a, b],

        tolerance: 1e-2,
        metal: false,
    }
    .check(|x| x[0].add_inplace(x[1]));
}

#[test]
fn one_element_is_added_to_all() {
    for (a_type, b_type) in [
        (F32, F32),
        (F16, F16),
        (F16, F32),
        (BF16, BF16),
        (BF16, F32),
        (Q8_0, F32),
    ] {
        let given = || {
            vec![
                Given::random(a_type, &[32, 3, 2], 1, 1.0),
                Given::float(b_type, &[1], vec![0.75]),
            ]
        };
        let expected: Vec<_> = given()[0].values().iter().map(|x| x + 0.75).collect();
        for (name, op) in [
            ("add1", (|a, b| a.add1(b)) as Op2),
            ("add1_inplace", |a, b| a.add1_inplace(b)),
        ] {
            Case {
                name: format!("{name} of {a_type} and {b_type}"),
                given: given(),

                expected: expected.clone(),
                tolerance: if a_type == Q8_0 {
                    1e-2
                } else {
                    2.0 * rounding(a_type)
                },
                metal: false,
            }
            .check(move |x| op(x[0], x[1]));
        }
    }
}

#[test]
fn scales_have_a_bias() {
    for (dtype, metal) in [(F32, true), (BF16, false)] {
        let given = || vec![Given::random(dtype, &[6, 4, 2], 1, 2.0)];
        let expected: Vec<_> = given()[0]
            .values()
            .iter()
            .map(|x| -1.5 * x + 0.25)
            .collect();
        let plain: Vec<_> = given()[0].values().iter().map(|x| -1.5 * x).collect();
        let ops: [(&str, Op, &Vec<f64>); 4] = [
            ("scale", |a| a.scale(-1.5), &plain),
            ("scale_inplace", |a| a.scale_inplace(-1.5), &plain),
            ("scale_bias", |a| a.scale_bias(-1.5, 0.25), &expected),
            (
                "scale_bias_inplace",
                |a| a.scale_bias_inplace(-1.5, 0.25),
                &expected,
            ),
        ];
        for (name, op, expected) in ops {
            Case {
                name: format!("{name} of {dtype}"),
                given: given(),

                expected: expected.clone(),
                tolerance: rounding(dtype),
                metal,
            }
            .check(move |x| op(x[0]));
        }
    }
}

/// A Metal kernel that is fused with the norm before it has no bias.
#[test]
fn a_scaled_norm_keeps_its_bias() {
    let given = Given::random(F32, &[8, 4], 3, 2.0);
    let values = given.values();
    let rows = values.chunks(8).flat_map(|row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / 8.0;
        row.iter()
            .map(move |x| 2.0 * x / (mean + 1e-6).sqrt() + 0.5)
    });
    Case {
        name: "scale_bias of rms_norm".to_owned(),
        expected: rows.collect(),
        given: vec![given],

        tolerance: 4e-6,
        metal: true,
    }
    .check(|x| x[0].rms_norm(1e-6)?.scale_bias(2.0, 0.5));
}

#[test]
fn fills_do_not_read() {
    for dtype in [F32, F16] {
        let ops: [(&str, Op); 2] = [
            ("fill", |a| a.fill(0.5)),
            ("fill_inplace", |a| a.fill_inplace(0.5)),
        ];
        for (name, op) in ops {
            Case {
                name: format!("{name} of {dtype}"),
                given: vec![Given::float(dtype, &[5, 3], vec![f32::NAN; 15])],

                expected: vec![0.5; 15],
                tolerance: 0.0,
                metal: true,
            }
            .check(move |x| op(x[0]));
        }
    }
}

#[test]
fn windows_are_added_to_and_replaced() {
    let (ne, b_ne) = ([8, 6, 2, 1], [3, 2, 2, 1]);
    // Rows 1 and 4 of both matrices, from column 2 on.
    let (strides, offset) = ([3 * 32, 6 * 32, 2 * 6 * 32], 32 + 8);
    let window = |i: [usize; 4]| index(ne, [i[0] + 2, 3 * i[1] + 1, i[2], i[3]]);
    let given = || {
        vec![
            Given::random(F32, &ne, 1, 1.0),
            Given::random(F32, &b_ne, 2, 1.0),
        ]
    };
    let (a, b) = (given()[0].values(), given()[1].values());
    let (mut added, mut replaced) = (a.clone(), a);
    for i in places(b_ne) {
        added[window(i)] += b[index(b_ne, i)];
        replaced[window(i)] = b[index(b_ne, i)];
    }
    type Windowed = for<'g> fn(Tensor<'g>, Tensor<'g>, [usize; 3], usize) -> Result<Tensor<'g>>;
    let ops: [(&str, Windowed, &Vec<f64>); 4] = [
        ("acc", |a, b, nb, at| a.acc(b, nb, at), &added),
        (
            "acc_inplace",
            |a, b, nb, at| a.acc_inplace(b, nb, at),
            &added,
        ),
        ("set", |a, b, nb, at| a.set(b, nb, at), &replaced),
        (
            "set_inplace",
            |a, b, nb, at| a.set_inplace(b, nb, at),
            &replaced,
        ),
    ];
    for (name, op, expected) in ops {
        Case {
            name: name.to_owned(),
            given: given(),

            expected: expected.clone(),
            tolerance: 1e-6,
            metal: true,
        }
        .check(move |x| op(x[0], x[1], strides, offset));
    }
}

#[test]
fn rows_and_matrices_are_replaced_with_the_strides_of_the_whole() {
    let given = || {
        let values = |n: i32, from: i32| (from..from + n).collect();
        vec![
            Given::i32(&[4, 3], values(12, 0)),
            Given::i32(&[2], values(2, 100)),
            Given::i32(&[2, 2], values(4, 200)),
        ]
    };
    let row = [0, 1, 2, 3, 4, 100, 101, 7, 8, 9, 10, 11];
    let matrix = [0, 1, 200, 201, 4, 5, 6, 7, 8, 9, 202, 203];
    let ops: [(&str, Op2, Op2, [i32; 12]); 2] = [
        (
            "set_1d",
            |a, b| a.set_1d(b, 20),
            |a, b| a.set_1d_inplace(b, 20),
            row,
        ),
        (
            "set_2d",
            |a, b| a.set_2d(b, 32, 8),
            |a, b| a.set_2d_inplace(b, 32, 8),
            matrix,
        ),
    ];
    for (at, (name, op, over, expected)) in ops.into_iter().enumerate() {
        for (name, op) in [(name.to_owned(), op), (format!("{name}_inplace"), over)] {
            Case {
                name,
                given: given(),

                expected: expected.iter().map(|&x| x.into()).collect(),
                tolerance: 0.0,
                metal: true,
            }
            .check(move |x| op(x[0], x[at + 1]));
        }
    }
}

#[test]
fn gates_are_fused_swapped_and_split() {
    type Gate = (GluOp, fn(f64) -> f64, f64);
    let functions: [Gate; 5] = [
        (GluOp::Reglu, |x| x.max(0.0), 0.0),
        (GluOp::Geglu, gelu, LOOKED_UP),
        (GluOp::Swiglu, silu, 0.0),
        (GluOp::GegluErf, gelu_erf, 0.0),
        (GluOp::GegluQuick, gelu_quick, LOOKED_UP),
    ];
    for (function, reference, error) in functions {
        for dtype in FLOATS.iter().copied() {
            let given = || vec![Given::random(dtype, &[12, 3, 2], 1, 3.0)];
            let values = given()[0].values();
            let halves = |x: usize, y: usize| -> Vec<f64> {
                let row = |row: &[f64]| {
                    (0..6)
                        .map(|i| reference(row[6 * x + i]) * row[6 * y + i])
                        .collect::<Vec<_>>()
                };
                values.chunks(12).flat_map(row).collect()
            };
            let case = |name: &str, expected| Case {
                name: format!("{name} {function:?} of {dtype}"),
                given: given(),
                expected,
                tolerance: (4.0 * error).max(4.0 * rounding(dtype)),
                metal: dtype != BF16,
            };
            case("fused", halves(0, 1)).check(|x| x[0].glu(function));
            case("swapped", halves(1, 0)).check(|x| x[0].glu_swapped(function));
            // Both halves of a row as they lie, with gaps between rows.
            case("split", halves(0, 1)).check(|x| {
                let [nb0, nb1, nb2, nb3] = x[0].strides();
                let half = |at| x[0].view([6, 3, 2], [nb1, nb2, nb3], at);
                half(0)?.glu_split(half(6 * nb0)?, function)
            });
        }
    }
}

#[test]
fn gates_are_limited() {
    let oai = |x: f64, y: f64| {
        let (x, y) = (x.min(1.5), y.clamp(-1.5, 1.5));
        x * sigmoid(f64::from(1.702f32) * x) * (y + 1.0)
    };
    let clamp = |x: f64, y: f64| silu(x.min(1.5)) * y.clamp(-1.5, 1.5);
    for dtype in [F32, F16] {
        let given = || {
            vec![
                Given::random(dtype, &[6, 4], 1, 3.0),
                Given::random(dtype, &[6, 4], 2, 3.0),
            ]
        };
        let (a, b) = (given()[0].values(), given()[1].values());
        let pairs = || a.iter().zip(&b);
        if dtype == F32 {
            Case {
                name: "swiglu_oai".to_owned(),
                given: given(),

                expected: pairs().map(|(&x, &y)| oai(x, y)).collect(),
                tolerance: 4e-6,
                metal: true,
            }
            .check(|x| x[0].swiglu_oai(x[1], 1.702, 1.5));
        }
        Case {
            name: format!("swiglu_clamp of {dtype}"),
            given: given(),

            expected: pairs().map(|(&x, &y)| clamp(x, y)).collect(),
            tolerance: 2.0 * rounding(dtype),
            metal: true,
        }
        .check(|x| x[0].swiglu_clamp(x[1], 1.5));
    }
}

#[test]
fn the_gradient_of_silu() {
    for dtype in [F32, F16] {
        let given = || {
            vec![
                Given::random(dtype, &[6, 4, 2], 1, 1.0),
                Given::random(dtype, &[6, 4, 2], 2, 4.0),
            ]
        };
        let (gradient, x) = (given()[0].values(), given()[1].values());
        let back = |(g, x): (&f64, &f64)| g * sigmoid(*x) * (1.0 + x * (1.0 - sigmoid(*x)));
        Case {
            name: format!("silu_back of {dtype}"),
            given: given(),

            expected: gradient.iter().zip(&x).map(back).collect(),
            tolerance: 2.0 * rounding(dtype),
            metal: dtype == F32,
        }
        .check(|x| x[0].silu_back(x[1]));
    }
}

/// What the CPU's tables refuse, its kernels abort on or compute wrongly.
#[test]
fn integers_have_no_functions() {
    use ggml_rs::{Device, Error, Graph, Plan, PlanOptions};
    let backend = Device::cpu().unwrap().open().unwrap();
    let ops: [(&str, Op); 4] = [
        ("relu", |a| a.relu()),
        ("sqr", |a| a.sqr()),
        ("clamp", |a| a.clamp(0.0, 1.0)),
        ("reglu", |a| a.glu(GluOp::Reglu)),
    ];
    for (name, op) in ops {
        let (graph, _) = Graph::build(|g| {
            let (a, _) = g.input("a", I32, [8])?;
            g.output("y", op(a)?)
        })
        .unwrap();
        let refused = Plan::new(graph, &backend, PlanOptions::default());
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{name}");
    }
}
