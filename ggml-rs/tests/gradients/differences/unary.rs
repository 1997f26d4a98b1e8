//! Functions of one element, and gated linear units.

use ggml_rs::check::Data;
use ggml_rs::graph::GluOp;
use ggml_rs::{Result, Tensor};

use super::Case;

type Unary = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;

/// A name, the function, the range of its arguments and its kinks.
type Function = (&'static str, Unary, (f32, f32), &'static [f32]);

const FUNCTIONS: [Function; 22] = [
    ("SQR", |a| a.sqr(), (-2.0, 2.0), &[]),
    ("SQRT", |a| a.sqrt(), (0.2, 3.0), &[]),
    ("LOG", |a| a.log(), (0.2, 3.0), &[]),
    ("SIN", |a| a.sin(), (-3.0, 3.0), &[]),
    ("COS", |a| a.cos(), (-3.0, 3.0), &[]),
    ("ABS", |a| a.abs(), (-2.0, 2.0), &[0.0]),
    ("NEG", |a| a.neg(), (-2.0, 2.0), &[]),
    ("TANH", |a| a.tanh(), (-2.0, 2.0), &[]),
    ("ELU", |a| a.elu(), (-3.0, 3.0), &[0.0]),
    ("RELU", |a| a.relu(), (-2.0, 2.0), &[0.0]),
    ("SIGMOID", |a| a.sigmoid(), (-4.0, 4.0), &[]),
    ("GELU", |a| a.gelu(), (-3.0, 3.0), &[]),
    ("GELU_QUICK", |a| a.gelu_quick(), (-3.0, 3.0), &[]),
    ("GELU_ERF", |a| a.gelu_erf(), (-3.0, 3.0), &[]),
    ("SILU", |a| a.silu(), (-4.0, 4.0), &[]),
    ("HARDSWISH", |a| a.hardswish(), (-5.0, 5.0), &[-3.0, 3.0]),
    (
        "HARDSIGMOID",
        |a| a.hardsigmoid(),
        (-5.0, 5.0),
        &[-3.0, 3.0],
    ),
    ("EXP", |a| a.exp(), (-2.0, 2.0), &[]),
    ("EXPM1", |a| a.expm1(), (-2.0, 2.0), &[]),
    ("SOFTPLUS", |a| a.softplus(), (-4.0, 4.0), &[]),
    ("LEAKY_RELU", |a| a.leaky_relu(0.1), (-2.0, 2.0), &[0.0]),
    ("CLAMP", |a| a.clamp(-0.7, 1.1), (-2.0, 2.0), &[-0.7, 1.1]),
];

/// The CPU backend looks these functions up in a table of F16, by arguments rounded to F16: half a unit of that type each way,
/// wherever the value of the function is part of the gradient.
fn looked_up(case: Case) -> Case {
    let table = ["GELU", "GELU_QUICK", "GEGLU", "GEGLU_QUICK"];
    if table.contains(&case.op) {
        case.tolerance(1.5e-3)
    } else {
        case
    }
}

fn functions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, function, (low, high), kinks) in FUNCTIONS {
        let data = move || Data::smooth(low, high, kinks);
        cases.push(Case::new(name, "plain", move |t| {
            function(t.trained([5, 3, 2], data())?)
        }));
        cases.push(Case::new(name, "argument used again", move |t| {
            let a = t.trained([5, 3], data())?;
            function(a)?.mul(a)
        }));
        cases.push(Case::new(
            name,
            "result transposed before it is used",
            move |t| function(t.trained([5, 3], data())?)?.transpose()?.cont(),
        ));
    }
    cases
}

const GATED: [(&str, GluOp); 5] = [
    ("REGLU", GluOp::Reglu),
    ("GEGLU", GluOp::Geglu),
    ("SWIGLU", GluOp::Swiglu),
    ("GEGLU_ERF", GluOp::GegluErf),
    ("GEGLU_QUICK", GluOp::GegluQuick),
];

fn gated() -> Vec<Case> {
    let data = || Data::smooth(-3.0, 3.0, &[0.0]);
    let mut cases = Vec::new();
    for (name, function) in GATED {
        cases.push(Case::new(name, "split", move |t| {
            let (a, b) = (t.trained([5, 3, 2], data())?, t.trained([5, 3, 2], data())?);
            a.glu_split(b, function)
        }));
        cases.push(Case::new(name, "both operands the same", move |t| {
            let a = t.trained([5, 3], data())?;
            a.glu_split(a, function)
        }));
        cases.push(Case::new(name, "fused", move |t| {
            t.trained([6, 3, 2], data())?.glu(function)
        }));
        cases.push(Case::new(name, "fused and swapped", move |t| {
            t.trained([6, 3], data())?.glu_swapped(function)
        }));
        cases.push(Case::new(
            name,
            "result transposed before it is used",
            move |t| {
                let a = t.trained([6, 3], data())?;
                a.glu(function)?.transpose()?.cont()
            },
        ));
    }
    cases.push(Case::new("SWIGLU_OAI", "split", |t| {
        let gate = t.trained([20, 3], Data::smooth(-3.0, 3.0, &[1.5]))?;
        let up = t.trained([20, 3], Data::smooth(-3.0, 3.0, &[-1.5, 1.5]))?;
        gate.swiglu_oai(up, 1.7, 1.5)
    }));
    cases.push(Case::new("SWIGLU_CLAMP", "split", |t| {
        let gate = t.trained([20, 3], Data::smooth(-3.0, 3.0, &[1.5]))?;
        let up = t.trained([20, 3], Data::smooth(-3.0, 3.0, &[-1.5, 1.5]))?;
        gate.swiglu_clamp(up, 1.5)
    }));
    cases
}

pub fn cases() -> Vec<Case> {
    let cases = functions().into_iter().chain(gated());
    cases.map(looked_up).collect()
}
