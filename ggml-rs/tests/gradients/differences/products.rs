//! Products of matrices.

use ggml_rs::check::{Data, Inputs};
use ggml_rs::graph::SoftMax;
use ggml_rs::{DType, Result, Tensor};

use super::Case;

fn plain() -> Vec<Case> {
    let mut cases = Vec::new();
    for (a, b) in [
        ([8, 5, 1, 1], [8, 3, 1, 1]),
        ([8, 5, 2, 2], [8, 3, 2, 2]),
        // Grouped queries: several matrices of b per matrix of a.
        ([8, 5, 1, 1], [8, 3, 4, 1]),
        ([8, 5, 2, 1], [8, 3, 4, 1]),
        ([8, 5, 2, 2], [8, 3, 4, 2]),
        ([8, 5, 1, 2], [8, 3, 3, 4]),
        ([8, 5, 2, 2], [8, 3, 4, 6]),
        ([4, 1, 1, 1], [4, 1, 1, 1]),
    ] {
        cases.push(Case::new("MUL_MAT", format!("{a:?} and {b:?}"), move |t| {
            t.trained(a, Data::unit())?
                .mul_mat(t.trained(b, Data::unit())?)
        }));
    }
    cases
}

fn layouts() -> Vec<Case> {
    vec![
        Case::new("MUL_MAT", "a permuted", |t| {
            let a = t.trained([8, 2, 5], Data::unit())?.permute([0, 2, 1, 3])?;
            a.mul_mat(t.trained([8, 3, 4], Data::unit())?)
        }),
        Case::new("MUL_MAT", "b permuted", |t| {
            let a = t.trained([8, 5, 2], Data::unit())?;
            a.mul_mat(t.trained([8, 4, 3], Data::unit())?.permute([0, 2, 1, 3])?)
        }),
        Case::new("MUL_MAT", "result transposed before it is used", |t| {
            let a = t.trained([8, 5], Data::unit())?;
            a.mul_mat(t.trained([8, 3], Data::unit())?)?
                .transpose()?
                .cont()
        }),
        Case::new("MUL_MAT", "a with itself", |t| {
            let a = t.trained([8, 5], Data::unit())?;
            a.mul_mat(a)
        }),
        Case::new("MUL_MAT", "weights used twice", |t| {
            let w = t.trained([6, 6], Data::unit())?;
            w.mul_mat(w.mul_mat(t.trained([6, 3], Data::unit())?)?)
        }),
        Case::new("OUT_PROD", "plain", |t| {
            let a = t.trained([5, 8], Data::unit())?;
            a.out_prod(t.trained([3, 8], Data::unit())?)
        }),
        Case::new("OUT_PROD", "broadcast", |t| {
            let a = t.trained([5, 8, 2, 1], Data::unit())?;
            a.out_prod(t.trained([3, 8, 4, 2], Data::unit())?)
        }),
        Case::new("OUT_PROD", "b transposed", |t| {
            let a = t.trained([5, 8], Data::unit())?;
            a.out_prod(t.trained([8, 3], Data::unit())?.transpose()?)
        }),
        Case::new("OUT_PROD", "both operands the same", |t| {
            let a = t.trained([5, 8], Data::unit())?;
            a.out_prod(a)
        }),
    ]
}

/// Frozen weights of other types. The gradient multiplies with the weights as they are, in f32.
fn frozen() -> Vec<Case> {
    use DType::{BF16, F16, Q4_K, Q5_0, Q8_0};
    let types = [F16, BF16, Q8_0, Q5_0, Q4_K];
    types
        .into_iter()
        .map(|dtype| {
            Case::new("MUL_MAT", format!("frozen weights of {dtype}"), move |t| {
                let a = t.fixed(dtype, [256, 3], Data::unit())?;
                a.mul_mat(t.trained([256, 2], Data::unit())?)
            })
        })
        .collect()
}

const TOKENS: usize = 3;
const EXPERTS: usize = 4;
const CHOSEN: [i32; 6] = [0, 2, 3, 1, 1, 0];

fn experts() -> Vec<Case> {
    let mut cases = Vec::new();
    for rows in [1, 2] {
        cases.push(Case::new(
            "MUL_MAT_ID",
            format!("{rows} rows a token"),
            move |t| {
                let a = t.trained([8, 5, EXPERTS], Data::unit())?;
                let b = t.trained([8, rows, TOKENS], Data::unit())?;
                a.mul_mat_id(b, t.expert_ids(TOKENS, EXPERTS, &CHOSEN)?)
            },
        ));
    }
    cases.push(Case::new(
        "MUL_MAT_ID",
        "two products by the same ids",
        |t| {
            let (up, down) = (
                t.trained([4, 6, EXPERTS], Data::unit())?,
                t.trained([6, 4, EXPERTS], Data::unit())?,
            );
            let x = t.trained([4, 1, TOKENS], Data::unit())?;
            let ids = t.expert_ids(TOKENS, EXPERTS, &CHOSEN)?;
            down.mul_mat_id(up.mul_mat_id(x, ids)?, ids)
        },
    ));
    cases.push(Case::new("MUL_MAT_ID", "frozen weights of q8_0", |t| {
        let a = t.fixed(DType::Q8_0, [32, 5, EXPERTS], Data::unit())?;
        let b = t.trained([32, 1, TOKENS], Data::unit())?;
        a.mul_mat_id(b, t.expert_ids(TOKENS, EXPERTS, &CHOSEN)?)
    }));
    cases
}

/// Casts to narrower types round on the device, and their gradients are those of the identity.
fn casts() -> Vec<Case> {
    let through = |dtype: DType| {
        Case::new("CPY", format!("cast to {dtype} and back"), move |t| {
            let a = t.trained([6, 4], Data::unit())?;
            a.cast(dtype)?.cast(DType::F32)?.scale(1.5)
        })
    };
    let mut cases = vec![through(DType::F16), through(DType::BF16)];
    // The device multiplies with the rounded weights: half a unit of the type.
    for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        cases.push(
            Case::new("MUL_MAT", format!("weights cast to {dtype}"), move |t| {
                let a = t.trained([16, 4], Data::unit())?;
                a.cast(dtype)?.mul_mat(t.trained([16, 3], Data::unit())?)
            })
            .tolerance(tolerance),
        );
    }
    cases
}

/// Attention as products: the path that a backward takes instead of flash attention.
fn attention<'g>(t: &mut Inputs<'g>) -> Result<Tensor<'g>> {
    const HEAD: usize = 8;
    let q = t.trained([HEAD, 5, 4], Data::unit())?;
    let k = t.trained([HEAD, 6, 2], Data::unit())?;
    let v = t.trained([6, HEAD, 2], Data::unit())?;
    let mask = t.fixed(DType::F32, [6, 5], Data::unit())?;
    let scores = k.mul_mat(q)?.soft_max_ext(SoftMax {
        mask: Some(mask),
        scale: 0.35,
        ..SoftMax::default()
    })?;
    v.mul_mat(scores)?
        .permute([0, 2, 1, 3])?
        .cont()?
        .reshape([HEAD * 4, 5])
}

pub fn cases() -> Vec<Case> {
    let mut cases = plain();
    cases.extend(layouts());
    cases.extend(frozen());
    cases.extend(experts());
    cases.extend(casts());
    cases.push(Case::new(
        "MUL_MAT",
        "attention with grouped queries",
        attention,
    ));
    cases
}
