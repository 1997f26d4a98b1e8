//! Functions of one element and gated units, against differences of the same functions in f64: gelu and gelu_quick look values up in
//! a table of halves on the CPU, of which differences would show the steps.

use ggml_rs::graph::GluOp;
use ggml_rs::{Result, Tensor};

use super::slopes::Run;
use crate::common::values;

type Op = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;

/// A function of numbers.
type Real = fn(f64) -> f64;

/// A name, an op, and what it computes.
type Function = (&'static str, Op, Real);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * x * (1.0 + 0.044_715 * x * x)).tanh())
}

fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}

/// The error function by its series, which converges everywhere; 60 terms are exact to 1e-12 for |x| < 3.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..60 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / 2.0_f64.sqrt()))
}

fn hardsigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

fn slope(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    let difference = |h: f64| (f(x + h) - f(x - h)) / (2.0 * h);
    (4.0 * difference(5e-4) - difference(1e-3)) / 3.0
}

#[track_caller]
fn close(what: &str, found: f32, expected: f64) {
    within(4e-6, what, found, expected);
}

#[track_caller]
fn within(tolerance: f64, what: &str, found: f32, expected: f64) {
    let error = (f64::from(found) - expected).abs();
    assert!(
        error <= tolerance * expected.abs().max(1.0),
        "{what}: {found}, not {expected}"
    );
}

/// Away from the kinks at 0, 1, 3 and their opposites, large and small, and next to nothing.
const AT: [f32; 16] = [
    -3.9, -3.1, -2.5, -1.3, -0.75, -0.3, -0.01, 0.01, 0.2, 0.6, 1.1, 1.9, 2.6, 3.2, 3.7, 3.95,
];

#[test]
fn functions_of_one_element() {
    let functions: [Function; 19] = [
        ("gelu", |a| a.gelu(), gelu),
        ("gelu_erf", |a| a.gelu_erf(), gelu_erf),
        ("gelu_quick", |a| a.gelu_quick(), gelu_quick),
        ("silu", |a| a.silu(), silu),
        ("sigmoid", |a| a.sigmoid(), sigmoid),
        ("tanh", |a| a.tanh(), f64::tanh),
        ("elu", |a| a.elu(), |x| if x > 0.0 { x } else { x.exp_m1() }),
        ("hardswish", |a| a.hardswish(), |x| x * hardsigmoid(x)),
        ("hardsigmoid", |a| a.hardsigmoid(), hardsigmoid),
        (
            "leaky_relu",
            |a| a.leaky_relu(0.1),
            |x| if x > 0.0 { x } else { 0.1 * x },
        ),
        ("clamp", |a| a.clamp(-1.0, 3.0), |x| x.clamp(-1.0, 3.0)),
        ("relu", |a| a.relu(), |x| x.max(0.0)),
        ("abs", |a| a.abs(), f64::abs),
        ("exp", |a| a.exp(), f64::exp),
        ("expm1", |a| a.expm1(), f64::exp_m1),
        ("softplus", |a| a.softplus(), |x| x.exp().ln_1p()),
        ("sqr", |a| a.sqr(), |x| x * x),
        ("sin", |a| a.sin(), f64::sin),
        ("cos", |a| a.cos(), f64::cos),
    ];
    for (name, op, f) in functions {
        let mut run = Run::new(&[(&[4, 4], AT.to_vec())], &|_, p, _| op(p[0])).unwrap();
        let found = run.gradients().remove(0);
        for ((&x, found), weight) in AT.iter().zip(found).zip(values(16, 77)) {
            // Each element's weight is its own, so the gradient divided by it is the slope.
            let expected = slope(f, f64::from(x)) * f64::from(weight);
            close(&format!("{name} at {x}"), found, expected);
        }
    }
}

#[test]
fn positive_functions() {
    let functions: [Function; 2] = [
        ("log", |a| a.log(), f64::ln),
        ("sqrt", |a| a.sqrt(), f64::sqrt),
    ];
    let at = [0.25_f32, 0.5, 0.9, 1.0, 1.7, 3.0, 9.0, 20.0];
    for (name, op, f) in functions {
        let mut run = Run::new(&[(&[8], at.to_vec())], &|_, p, _| op(p[0])).unwrap();
        let found = run.gradients().remove(0);
        for ((&x, found), weight) in at.iter().zip(found).zip(values(8, 77)) {
            close(name, found, slope(f, f64::from(x)) * f64::from(weight));
        }
    }
}

#[test]
fn gelu_erf_next_to_zero() {
    let at = [0.0_f32, -0.0, 1e-7, -1e-7, 1e-30, 1e-42, 2e-6, -2e-6];
    let mut run = Run::new(&[(&[8], at.to_vec())], &|_, p, _| p[0].gelu_erf()).unwrap();
    for (found, weight) in run.gradients().remove(0).into_iter().zip(values(8, 77)) {
        close("gelu_erf", found, 0.5 * f64::from(weight));
    }
}

#[test]
fn constant_functions_have_no_gradient() {
    let mut run = Run::new(&[(&[4], vec![0.3, -1.2, 2.5, 0.9])], &|_, p, _| {
        let steps = p[0]
            .round()?
            .add(p[0].step()?)?
            .add(p[0].floor()?)?
            .add(p[0].sgn()?)?;
        p[0].add(steps)
    })
    .unwrap();
    assert_eq!(run.gradients().remove(0), values(4, 77));
}

/// A gated unit of halves `x` and `gate`, in f64.
type Gated = fn(f64, f64) -> f64;

fn check_gated(
    name: &str,
    halves: [usize; 2],
    build: super::slopes::Build<'_>,
    split: bool,
    f: Gated,
) {
    let gate: Vec<f32> = AT.iter().rev().map(|x| 0.9 * x + 0.07).collect();
    // [4, 4] each; in one tensor a row is four of one and four of the other.
    let rows = |h: usize, r: usize| {
        if h == 0 {
            &AT[4 * r..][..4]
        } else {
            &gate[4 * r..][..4]
        }
    };
    let joined: Vec<f32> = (0..4)
        .flat_map(|r| [rows(halves[0], r), rows(halves[1], r)].concat())
        .collect();
    let mut run = if split {
        Run::new(&[(&[4, 4], AT.to_vec()), (&[4, 4], gate.clone())], build)
    } else {
        Run::new(&[(&[8, 4], joined)], build)
    }
    .unwrap();
    let found = run.gradients();
    for (i, weight) in values(16, 77).into_iter().enumerate() {
        let (x, y) = (f64::from(AT[i]), f64::from(gate[i]));
        let expected = [slope(|x| f(x, y), x), slope(|y| f(x, y), y)];
        for part in 0..2 {
            let found = if split {
                found[part][i]
            } else {
                let place = if halves[0] == part { 0 } else { 4 };
                found[0][8 * (i / 4) + place + i % 4]
            };
            // The gate's gradient is the activation itself, which the CPU may take from its table of halves.
            let table = name.starts_with("Geglu") && part == 1;
            within(
                if table { 1e-3 } else { 4e-6 },
                &format!("{name}, part {part}, element {i}"),
                found,
                expected[part] * f64::from(weight),
            );
        }
    }
}

#[test]
fn gated_units() {
    let units: [(GluOp, Real); 5] = [
        (GluOp::Reglu, |x| x.max(0.0)),
        (GluOp::Geglu, gelu),
        (GluOp::Swiglu, silu),
        (GluOp::GegluErf, gelu_erf),
        (GluOp::GegluQuick, gelu_quick),
    ];
    let forms: [Gated; 5] = [
        |x, y| x.max(0.0) * y,
        |x, y| gelu(x) * y,
        |x, y| silu(x) * y,
        |x, y| gelu_erf(x) * y,
        |x, y| gelu_quick(x) * y,
    ];
    for ((op, _), f) in units.into_iter().zip(forms) {
        check_gated(
            &format!("{op:?}"),
            [0, 1],
            &|_, p, _| p[0].glu(op),
            false,
            f,
        );
        check_gated(
            &format!("{op:?} swapped"),
            [1, 0],
            &|_, p, _| p[0].glu_swapped(op),
            false,
            f,
        );
        check_gated(
            &format!("{op:?} split"),
            [0, 1],
            &|_, p, _| p[0].glu_split(p[1], op),
            true,
            f,
        );
    }
    check_gated(
        "swiglu_oai",
        [0, 1],
        &|_, p, _| p[0].swiglu_oai(p[1], 1.702, 2.2),
        true,
        |x, y| {
            let x = x.min(2.2);
            x * sigmoid(1.702 * x) * (y.clamp(-2.2, 2.2) + 1.0)
        },
    );
    check_gated(
        "swiglu_clamp",
        [0, 1],
        &|_, p, _| p[0].swiglu_clamp(p[1], 2.2),
        true,
        |x, y| silu(x.min(2.2)) * y.clamp(-2.2, 2.2),
    );
}

/// Terms of the slope overflow where the slope itself is 0 or 1.
#[test]
fn gelu_far_from_zero() {
    let at = [2e13, -2e13, 1e30, -1e30];
    let weights = values(4, 77);
    let expected = [weights[0], 0.0, weights[2], 0.0];
    let ops: [(&str, Op); 3] = [
        ("gelu", |a| a.gelu()),
        ("gelu_erf", |a| a.gelu_erf()),
        ("gelu_quick", |a| a.gelu_quick()),
    ];
    for (name, op) in ops {
        let mut run = Run::new(&[(&[4], at.to_vec())], &|_, p, _| op(p[0])).unwrap();
        assert_eq!(run.gradients()[0], expected, "{name}");
    }
    for op in [GluOp::Geglu, GluOp::GegluErf, GluOp::GegluQuick] {
        let params = [(&[4][..], at.to_vec()), (&[4][..], vec![1.0; 4])];
        let mut run = Run::new(&params, &|_, p, _| p[0].glu_split(p[1], op)).unwrap();
        assert_eq!(run.gradients()[0], expected, "{op:?}");
    }
}

/// What a clamp leaves as it is has a slope of 1, the bounds included.
#[test]
fn bounds_belong_to_a_clamp() {
    let weights = values(6, 77);
    let at = vec![-1.0, 1.5, -1.01, 1.51, 0.3, f32::INFINITY];
    let expected = [weights[0], weights[1], 0.0, 0.0, weights[4], 0.0];
    let mut run = Run::new(&[(&[6], at.clone())], &|_, p, _| p[0].clamp(-1.0, 1.5)).unwrap();
    assert_eq!(run.gradients()[0], expected);
    let mut run = Run::new(&[(&[6], at)], &|_, p, _| p[0].clamp(f32::NEG_INFINITY, 1.5)).unwrap();
    let below = [weights[0], weights[1], weights[2], 0.0, weights[4], 0.0];
    assert_eq!(run.gradients()[0], below);
    // A gate at its limit: silu(x) of an x at its own.
    let params = [(&[2][..], vec![2.0, 2.0]), (&[2][..], vec![2.0, -2.0])];
    let mut run = Run::new(&params, &|_, p, _| p[0].swiglu_clamp(p[1], 2.0)).unwrap();
    for (i, (found, weight)) in run.gradients()[1].iter().zip(&weights).enumerate() {
        close(&format!("gate {i}"), *found, silu(2.0) * f64::from(*weight));
    }
    for (i, (found, weight)) in run.gradients()[0].iter().zip(&weights).enumerate() {
        let gate = [2.0, -2.0][i];
        let expected = slope(silu, 2.0) * gate * f64::from(*weight);
        close(&format!("x {i}"), *found, expected);
    }
}
