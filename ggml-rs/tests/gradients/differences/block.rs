//! Ops together: a transformer block with adapters, and a mixture of experts.

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::check::{Data, Inputs};
use ggml_rs::graph::{GluOp, Rope, RopeMode, SoftMax};
use ggml_rs::{DType, Result, Tensor};

use super::Case;

const WIDTH: usize = 32;
const HEAD: usize = 8;
const HEADS: usize = 4;
const TOKENS: usize = 3;
const RANK: usize = 1;

/// Small weights, so that the block's values stay of the order of 1.
fn weights() -> Data {
    Data::Within(-0.3, 0.3)
}

/// A frozen projection with an adapter of low rank.
fn adapted<'g>(t: &mut Inputs<'g>, x: Tensor<'g>, dtype: DType, out: usize) -> Result<Tensor<'g>> {
    let [width, ..] = x.shape().ne();
    let w = t.fixed(dtype, [width, out], weights())?;
    let (down, up) = (
        t.trained([width, RANK], weights())?,
        t.trained([RANK, out], weights())?,
    );
    w.mul_mat(x)?.add(up.mul_mat(down.mul_mat(x)?)?.scale(2.0)?)
}

/// Queries or keys: heads turned by their positions, `[HEAD, TOKENS, HEADS]`.
fn turned<'g>(x: Tensor<'g>, positions: Tensor<'g>) -> Result<Tensor<'g>> {
    let options = Rope {
        mode: RopeMode::Neox,
        ..Rope::default()
    };
    let heads = x.reshape([HEAD, HEADS, TOKENS])?.rope(positions, options)?;
    heads.permute([0, 2, 1, 3])
}

fn attention<'g>(t: &mut Inputs<'g>, x: Tensor<'g>, dtype: DType) -> Result<Tensor<'g>> {
    let positions = t.integers([TOKENS], &[0, 1, 2])?;
    let q = turned(adapted(t, x, dtype, WIDTH)?, positions)?;
    let k = turned(adapted(t, x, dtype, WIDTH)?, positions)?;
    let v = adapted(t, x, dtype, WIDTH)?.reshape([HEAD, HEADS, TOKENS])?;
    let v = v.permute([1, 2, 0, 3])?.cont()?;
    let scores = k.mul_mat(q)?.diag_mask_inf(0)?;
    let options = SoftMax {
        scale: (HEAD as f32).powf(-0.5),
        ..SoftMax::default()
    };
    let mixed = v.mul_mat(scores.soft_max_ext(options)?)?;
    let mixed = mixed
        .permute([0, 2, 1, 3])?
        .cont()?
        .reshape([WIDTH, TOKENS])?;
    adapted(t, mixed, dtype, WIDTH)
}

fn feed_forward<'g>(t: &mut Inputs<'g>, x: Tensor<'g>, dtype: DType) -> Result<Tensor<'g>> {
    let gate = adapted(t, x, dtype, WIDTH)?;
    let up = adapted(t, x, dtype, WIDTH)?;
    adapted(t, gate.glu_split(up, GluOp::Swiglu)?, dtype, WIDTH)
}

fn normal<'g>(t: &mut Inputs<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
    let weights = t.trained([WIDTH], Data::Within(0.5, 1.5))?;
    x.rms_norm(1e-5)?.mul(weights)
}

fn block<'g>(t: &mut Inputs<'g>, dtype: DType) -> Result<Tensor<'g>> {
    let x = t.fixed(F32, [WIDTH, TOKENS], Data::unit())?;
    let before = normal(t, x)?;
    let x = x.add(attention(t, before, dtype)?)?;
    let before = normal(t, x)?;
    let x = x.add(feed_forward(t, before, dtype)?)?;
    let labels = t.fixed(F32, [WIDTH, TOKENS], Data::Shares)?;
    x.cross_entropy_loss(labels)
}

/// Experts that the graph itself chooses, weighted by the router's probabilities.
fn experts<'g>(t: &mut Inputs<'g>) -> Result<Tensor<'g>> {
    const EXPERTS: usize = 4;
    const CHOSEN: usize = 2;
    let x = t.trained([8, TOKENS], Data::unit())?;
    let router = t.trained([8, EXPERTS], Data::unit())?;
    let shares = router.mul_mat(x)?.soft_max()?;
    let chosen = shares.argsort_top_k(CHOSEN)?;
    // [1, EXPERTS, TOKENS] by [CHOSEN, TOKENS] gives [1, CHOSEN, TOKENS].
    let weights = shares.reshape([1, EXPERTS, TOKENS])?.get_rows(chosen)?;
    let up = t.fixed(F32, [32, 8, EXPERTS], Data::unit())?;
    let spread = t.trained([8, 32], Data::unit())?;
    let wide = spread.mul_mat(x)?.reshape([32, 1, TOKENS])?;
    up.mul_mat_id(wide, chosen.experts()?)?.mul(weights)
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("SWIGLU", "a transformer block with adapters", |t| {
            block(t, F32)
        }),
        // The device rounds activations to 8 bits before each product with a frozen weight, which changes the values that the
        // gradients are taken at. The formulas are exact there as well.
        Case::new("SWIGLU", "a transformer block with adapters on q8_0", |t| {
            block(t, Q8_0)
        })
        .tolerance(0.3),
        Case::new("SILU", "computed again in the backward", |t| {
            let w = t.trained([6, 6], Data::unit())?;
            let x = t.trained([6, 4], Data::unit())?;
            let builder = t.builder();
            let hidden = builder.checkpoint(|| w.mul_mat(x)?.silu()?.mul(x))?;
            w.mul_mat(hidden)?.add(x)
        }),
        Case::new("MUL_MAT_ID", "a router and its experts", experts),
    ]
}
