//! Sums, means, and copies that sums undo.

use ggml_rs::check::{Data, Inputs};
use ggml_rs::{Result, Tensor};

use super::Case;

/// A tensor that is permuted, squared so that its gradient is not constant.
fn squared<'g>(t: &mut Inputs<'g>, shape: [usize; 4]) -> Result<Tensor<'g>> {
    let a = t.trained(shape, Data::unit())?;
    a.mul(a)
}

fn of_rows(name: &'static str, op: for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>) -> Vec<Case> {
    vec![
        Case::new(name, "several rows", move |t| op(squared(t, [5, 3, 2, 2])?)),
        Case::new(name, "one row", move |t| op(squared(t, [7, 1, 1, 1])?)),
        Case::new(name, "rows of one", move |t| op(squared(t, [1, 4, 2, 1])?)),
        Case::new(name, "the operand is used again", move |t| {
            let a = t.trained([5, 3, 2, 1], Data::unit())?;
            a.mul(op(a)?)
        }),
        Case::new(name, "used again before", move |t| {
            let a = t.trained([5, 3], Data::unit())?;
            let b = a.mul(a)?;
            op(a)?.repeat([5, 3])?.mul(b)
        }),
        Case::new(name, "permuted, rows packed", move |t| {
            op(t.trained([4, 2, 3], Data::unit())?.permute([0, 2, 1, 3])?)
        }),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut cases = of_rows("SUM_ROWS", |a| a.sum_rows());
    cases.extend(of_rows("MEAN", |a| a.mean()));
    cases.extend([
        Case::new("SUM", "plain", |t| squared(t, [5, 3, 2, 2])?.sum()),
        Case::new("SUM", "the operand is used again", |t| {
            let a = t.trained([5, 3], Data::unit())?;
            a.mul(a.sum()?)
        }),
        Case::new("SUM", "permuted, rows packed", |t| {
            let a = t.trained([4, 2, 3], Data::unit())?;
            a.mul(a)?.permute([0, 2, 1, 3])?.sum()
        }),
        Case::new("REPEAT", "along every dimension", |t| {
            t.trained([2, 1, 3, 1], Data::unit())?.repeat([4, 3, 3, 2])
        }),
        Case::new("REPEAT", "a gradient that is not contiguous", |t| {
            let a = t.trained([2, 1, 3], Data::unit())?;
            a.repeat([4, 2, 3])?.permute([2, 0, 1, 3])?.cont()
        }),
        Case::new("REPEAT_BACK", "plain", |t| {
            let a = t.trained([4, 3, 2], Data::unit())?;
            let like = t.fixed(ggml_rs::DType::F32, [2, 1, 2], Data::unit())?;
            a.mul(a)?.repeat_back(like)
        }),
        Case::new("REPEAT", "used twice", |t| {
            let a = t.trained([2, 3], Data::unit())?;
            a.repeat([4, 3])?.add(a)
        }),
    ]);
    cases
}
