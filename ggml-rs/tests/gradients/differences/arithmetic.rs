//! Sums, differences, products and quotients of elements.

use ggml_rs::check::Data;
use ggml_rs::{Result, Tensor};

use super::Case;

type Binary = for<'g> fn(Tensor<'g>, Tensor<'g>) -> Result<Tensor<'g>>;

const BINARY: [(&str, Binary); 4] = [
    ("ADD", |a, b| a.add(b)),
    ("SUB", |a, b| a.sub(b)),
    ("MUL", |a, b| a.mul(b)),
    ("DIV", |a, b| a.div(b)),
];

/// Divisors stay away from 0.
fn divisor() -> Data {
    Data::Within(0.5, 2.0)
}

fn binary(name: &'static str, op: Binary) -> Vec<Case> {
    let mut cases = Vec::new();
    for b in [
        [4, 3, 2, 2],
        [4, 1, 1, 2],
        [1, 3, 2, 1],
        [2, 1, 2, 1],
        [1, 1, 1, 1],
    ] {
        cases.push(Case::new(name, format!("b {b:?}"), move |t| {
            let a = t.trained([4, 3, 2, 2], Data::unit())?;
            op(a, t.trained(b, divisor())?)
        }));
    }
    cases.push(Case::new(name, "both operands from the same", move |t| {
        let a = t.trained([4, 3], divisor())?;
        op(a, a.mul(a)?)
    }));
    cases.push(Case::new(name, "used twice, once broadcast", move |t| {
        let (a, b) = (t.trained([4, 3], divisor())?, t.trained([4, 1], divisor())?);
        op(op(a, b)?, b)?.mul(a)
    }));
    cases.push(Case::new(name, "b transposed", move |t| {
        let a = t.trained([4, 3], Data::unit())?;
        op(a, t.trained([3, 4], divisor())?.transpose()?)
    }));
    cases.push(Case::new(name, "a permuted", move |t| {
        let a = t.trained([4, 2, 3], Data::unit())?.permute([0, 2, 1, 3])?;
        op(a, t.trained([4, 3, 2], divisor())?)
    }));
    cases.push(Case::new(
        name,
        "result permuted before it is used",
        move |t| {
            let (a, b) = (
                t.trained([4, 3, 2], Data::unit())?,
                t.trained([4, 1, 2], divisor())?,
            );
            op(a, b)?.permute([2, 0, 1, 3])?.cont()
        },
    ));
    cases
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = BINARY
        .into_iter()
        .flat_map(|(name, op)| binary(name, op))
        .collect();
    cases.extend([
        Case::new("SCALE", "plain", |t| {
            t.trained([4, 3], Data::unit())?.scale(-1.7)
        }),
        Case::new("SCALE", "with a bias", |t| {
            t.trained([4, 3], Data::unit())?.scale_bias(0.6, 2.0)
        }),
        Case::new("ADD1", "plain", |t| {
            let a = t.trained([4, 3, 2], Data::unit())?;
            a.add1(t.trained([1], Data::unit())?)
        }),
        Case::new("ADD1", "the value is used twice", |t| {
            let (a, b) = (
                t.trained([4, 3], Data::unit())?,
                t.trained([1], Data::unit())?,
            );
            a.add1(b)?.mul(b)
        }),
    ]);
    cases
}
