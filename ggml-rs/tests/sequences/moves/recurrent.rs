//! States that go from token to token.

use ggml_rs::DType::F32;
use ggml_rs::{GatedDeltaNet, Result, SsmScan, Tensor};

use crate::draw::Draw;
use crate::table::family;

/// `N` operands [n, heads, tokens], and the state of some sequences.
fn tokens<'g, const N: usize>(d: &mut Draw<'g>, n: usize) -> Result<([Tensor<'g>; N], Tensor<'g>)> {
    let (heads, sequences) = (1 + d.below(3), d.batch());
    let ne = [n, heads, sequences * (1 + d.below(3)), 1];
    let mut operands = Vec::new();
    for _ in 0..N {
        operands.push(d.plain(F32, ne)?);
    }
    let state = d.plain(F32, [n * n * heads, sequences, 1, 1])?;
    Ok((operands.try_into().expect("N operands"), state))
}

fn length(d: &mut Draw<'_>) -> usize {
    d.pick(&[1, 2, 4, 8, 16, 32, 64])
}

/// States, and the operands of a scan.
fn scan<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, SsmScan<'g>)> {
    let state = d.pick(&[1, 4, 8, 16]);
    let groups = 1 + d.below(2);
    let heads = groups * (1 + d.below(2));
    let dim = d.pick(&[1, 2, 4, 8]);
    let (tokens, sequences) = (d.dim(), d.batch());
    let slots = sequences + d.below(2);
    let decay = if d.one_in(2) { 1 } else { state };
    let states = if decay == 1 && d.one_in(3) {
        1 + d.below(tokens)
    } else {
        1
    };
    let s = d.plain(F32, [state, dim, heads, slots])?;
    let x = d.plain(F32, [dim, heads, tokens, sequences])?;
    let dt = d.plain(F32, [heads, tokens, sequences, 1])?;
    let a = d.plain(F32, [decay, heads, 1, 1])?;
    let b = d.plain(F32, [state, groups, tokens, sequences])?;
    let c = d.plain(F32, [state, groups, tokens, sequences])?;
    let ids = d.rows(&[sequences], slots, false)?;
    let states = d.size(states);
    Ok((
        s,
        SsmScan {
            x,
            dt,
            a,
            b,
            c,
            ids,
            states,
        },
    ))
}

fn delta<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, GatedDeltaNet<'g>)> {
    let n = d.pick(&[1, 2, 4, 8, 16, 32]);
    let (keys, group) = (1 + d.below(2), 1 + d.below(2));
    let heads = keys * group;
    let (tokens, sequences) = (d.dim(), d.batch());
    let gates = if d.one_in(2) { 1 } else { n };
    let states = 1 + d.below(tokens);
    let q = d.plain(F32, [n, keys, tokens, sequences])?;
    let k = d.plain(F32, [n, keys, tokens, sequences])?;
    let v = d.plain(F32, [n, heads, tokens, sequences])?;
    let g = d.plain(F32, [gates, heads, tokens, sequences])?;
    let beta = d.plain(F32, [1, heads, tokens, sequences])?;
    let state = d.plain(F32, [n, n, heads, sequences])?;
    let states = d.size(states);
    Ok((
        q,
        GatedDeltaNet {
            k,
            v,
            g,
            beta,
            state,
            states,
        },
    ))
}

family! {
    rwkv_wkv6(d) {
        let n = length(d);
        let ([k, v, r, decay], state) = tokens(d, n)?;
        let [n, heads, ..] = k.shape().ne();
        let bonus = d.plain(F32, [n, heads, 1, 1])?;
    } k(v, r, bonus, decay, state);
    rwkv_wkv7(d) {
        let n = if d.one_in(4) { length(d) } else { 64 };
        let ([r, w, k, v, a, b], state) = tokens(d, n)?;
    } r(w, k, v, a, b, state);
    gated_linear_attn(d) {
        let n = length(d);
        let ([k, v, q, g], state) = tokens(d, n)?;
        let scale = d.float(0.5);
    } k(v, q, g, state, scale);
    gated_delta_net(d) { let (q, net) = delta(d)?; } q(net);
    ssm_conv(d) {
        let (k, n, tokens, sequences) = (1 + d.below(4), d.dim(), d.dim(), d.batch());
        let a = d.plain(F32, [k - 1 + tokens, n, sequences, 1])?;
        let kernel = d.plain(F32, [k, n, 1, 1])?;
    } a(kernel);
    ssm_scan(d) { let (s, scan) = scan(d)?; } s(scan);
    solve_tri(d) {
        let (n, k, n2, n3) = (d.dim(), d.dim(), d.batch(), d.batch());
        let a = d.plain(F32, [n, n, n2, n3])?;
        let b = d.plain(F32, [k, n, n2, n3])?;
    } a(b);
}
