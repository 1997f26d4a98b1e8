//! Attention, and what goes with it.

use ggml_rs::DType::{self, BF16, F16, F32};
use ggml_rs::{FlashAttn, Result, Tensor};

use crate::draw::Draw;
use crate::table::family;

const KEYS: [DType; 6] = [F32, F16, F16, BF16, DType::Q8_0, DType::Q4_0];

/// A row of this type, as long as a head.
fn head(d: &mut Draw<'_>, dtype: DType) -> usize {
    match dtype.block_len() {
        1 => d.pick(&[4, 8, 16, 32, 33]),
        _ => d.row(dtype),
    }
}

struct Attention<'g> {
    q: Tensor<'g>,
    k: Tensor<'g>,
    v: Tensor<'g>,
    options: FlashAttn<'g>,
}

fn attention<'g>(d: &mut Draw<'g>) -> Result<Attention<'g>> {
    let dtype = match d.one_in(6) {
        true => d.pick(&DType::ALL),
        false => d.pick(&KEYS),
    };
    let values = if d.one_in(3) { d.pick(&KEYS) } else { dtype };
    let (dk, dv) = (head(d, dtype), head(d, values));
    let (n, kv, batch) = (d.dim(), d.pick(&[1, 3, 8, 33, 64]), d.batch());
    let (k_heads, group) = (1 + d.below(2), 1 + d.below(2));
    let heads = k_heads * group;
    let q = d.tensor(F32, [dk, n, heads, batch])?;
    let k = d.tensor(dtype, [dk, kv, k_heads, batch])?;
    let v = d.tensor(values, [dv, kv, k_heads, batch])?;
    let mut options = FlashAttn::new(d.float(0.3));
    if d.one_in(2) {
        let ne = match d.one_in(2) {
            true => [kv, n, 1, 1],
            false => [kv, n + d.below(3), heads, batch],
        };
        options = options.mask(d.plain(F16, ne)?);
        if d.one_in(3) {
            options = options.max_bias(d.float(8.0));
        }
    }
    if d.one_in(3) {
        options = options.sinks(d.plain(F32, [heads, 1, 1, 1])?);
    }
    if d.one_in(4) {
        options = options.logit_softcap(d.float(10.0));
    }
    if d.one_in(6) {
        options = options.float();
    }
    Ok(Attention { q, k, v, options })
}

family! {
    flash_attn_ext(d) { let Attention { q, k, v, options } = attention(d)?; } q(k, v, options);
    lightning_indexer(d) {
        let dtype = d.pick(&KEYS);
        let (n, heads, tokens) = (head(d, dtype), 1 + d.below(3), d.dim());
        let (kv, streams) = (d.dim(), d.batch());
        let q = d.plain(F32, [n, heads, tokens, streams])?;
        let k = d.plain(dtype, [n, 1, kv, streams])?;
        let weights = d.plain(F32, [heads, tokens, 1, streams])?;
        let masks = if d.one_in(2) { 1 } else { streams };
        let mask = d.plain(F16, [kv, tokens, 1, masks])?;
    } q(k, weights, mask);
    dsv4_hc_comb(d) {
        let tokens = d.dim();
        let mixes = d.plain(F32, [24, tokens, 1, 1])?;
        let scale = d.plain(F32, [3, 1, 1, 1])?;
        let base = d.plain(F32, [24, 1, 1, 1])?;
        let eps = d.float(1e-5);
        let iterations = match d.wild() {
            true => d.pick(&[0, 65_537, usize::MAX]),
            false => 1 + d.below(4),
        };
    } mixes(scale, base, eps, iterations);
    dsv4_hc_pre(d) {
        let (n, streams, tokens) = (d.row(F32), 1 + d.below(4), d.dim());
        let x = d.tensor(F32, [n, streams, tokens, 1])?;
        let weights = d.tensor(F32, [streams, tokens, 1, 1])?;
    } x(weights);
    dsv4_hc_pre_gated(d) {
        let (n, streams, tokens) = (d.row(F32), 1 + d.below(4), d.dim());
        let x = d.tensor(F32, [n, streams, tokens, 1])?;
        let gate = d.tensor(F32, [n, streams, tokens, 1])?;
        let scale = d.float(2.0);
    } x(gate, scale);
    dsv4_hc_post(d) {
        let (n, streams, tokens) = (d.row(F32), 1 + d.below(4), d.dim());
        let x = d.tensor(F32, [n, tokens, 1, 1])?;
        let residual = d.tensor(F32, [n, streams, tokens, 1])?;
        let post = d.tensor(F32, [streams, tokens, 1, 1])?;
        let comb = match d.one_in(2) {
            true => Some(d.tensor(F32, [streams, streams, tokens, 1])?),
            false => None,
        };
    } x(residual, post, comb);
}
