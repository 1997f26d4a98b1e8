//! Recurrences over tokens: state space models, and linear attention in its variants.

use super::call::{Call, Operand};
use super::elementwise::softplus;
use super::memory::{flat, places};
use super::norm::dot;
use crate::error::Result;

/// SSM_CONV: each channel's window of tokens times its weights.
pub fn ssm_conv(call: &Call<'_>) -> Result<Vec<f64>> {
    let (x, weights) = (call.src(0)?, call.src(1)?);
    let taps = weights.ne[0];
    let value = |[channel, token, sequence, _]: [usize; 4]| {
        let window = &x.row(channel, sequence, 0)[token..][..taps];
        dot(window, weights.row(channel, 0, 0))
    };
    Ok(places(call.ne()).map(value).collect())
}

/// What an op returns after its tokens' results: the states after the last token (slot 0), one token earlier (slot 1), and
/// so on. A slot before the first token is not written.
struct Snapshots {
    slots: Vec<f64>,
    /// Values of all sequences' states.
    states: usize,
    tokens: usize,
}

impl Snapshots {
    fn new(call: &Call<'_>, states: usize, tokens: usize) -> Self {
        let slots = call.int(0).max(1) as usize;
        Self {
            slots: vec![f64::NAN; slots * states],
            states,
            tokens,
        }
    }

    /// Keeps a part of the state as it is after a token, if there is a slot for it.
    fn keep(&mut self, token: usize, first: usize, state: &[f64]) {
        let slot = self.tokens - 1 - token;
        if let Some(slot) = self.slots.chunks_mut(self.states).nth(slot) {
            slot[first..][..state.len()].copy_from_slice(state);
        }
    }
}

/// SSM_SCAN: operands are states, inputs, their step sizes, decays, `B`, `C`, and which state each sequence starts from.
pub fn ssm_scan(call: &Call<'_>) -> Result<Vec<f64>> {
    let (states, x, steps, decays) = (call.src(0)?, call.src(1)?, call.src(2)?, call.src(3)?);
    let (b, c, ids) = (call.src(4)?, call.src(5)?, call.src(6)?);
    let [dim, heads, tokens, sequences] = x.ne;
    let (len, per_group) = (states.ne[0], heads / b.ne[1]);
    let mut snapshots = Snapshots::new(call, len * dim * heads * sequences, tokens);
    let mut out = vec![0.0; x.values.len()];
    for [i, head, sequence, _] in places([dim, heads, sequences, 1]) {
        let mut state = states.row(i, head, ids.index([sequence, 0, 0, 0])).to_vec();
        for token in 0..tokens {
            let step = softplus(steps.at([head, token, sequence, 0]));
            let input = x.at([i, head, token, sequence]) * step;
            let b = b.row(head / per_group, token, sequence);
            let c = c.row(head / per_group, token, sequence);
            for (n, state) in state.iter_mut().enumerate() {
                let decay = (step * decays.at([n % decays.ne[0], head, 0, 0])).exp();
                *state = *state * decay + b[n] * input;
            }
            out[flat(x.ne, [i, head, token, sequence])] = dot(&state, c);
            let first = flat([len, dim, heads, sequences], [0, i, head, sequence]);
            snapshots.keep(token, first, &state);
        }
    }
    out.extend(snapshots.slots);
    Ok(out)
}

/// A head's part of a tensor of `[size, heads, tokens]`.
struct Heads<'a> {
    operand: Operand<'a>,
}

impl<'a> Heads<'a> {
    fn of(call: &Call<'a>, index: usize) -> Result<Self> {
        call.src(index).map(|operand| Self { operand })
    }

    fn get(&self, head: usize, token: usize) -> &[f64] {
        self.operand.row(head, token, 0)
    }
}

/// Runs `step` for each head of each token, with the head's state, a square, and where its result goes; returns results and
/// states. The tokens are those of `state`'s sequences, one after the other.
fn recur(
    [size, heads, tokens, _]: [usize; 4],
    state: &Operand<'_>,
    mut step: impl FnMut(usize, usize, &mut [f64], &mut [f64]),
) -> Vec<f64> {
    let (square, per_sequence) = (size * size, tokens / state.ne[1]);
    let mut states = state.values.to_vec();
    let mut out = vec![0.0; size * heads * tokens];
    for (number, out) in out.chunks_mut(size).enumerate() {
        let (head, token) = (number % heads, number / heads);
        let first = (token / per_sequence * heads + head) * square;
        step(head, token, &mut states[first..][..square], out);
    }
    out.extend(states);
    out
}

/// RWKV_WKV6: `out = r (bonus k v + S)`, then `S = decay S + k v`.
pub fn rwkv_wkv6(call: &Call<'_>) -> Result<Vec<f64>> {
    let (k, v, r) = (
        Heads::of(call, 0)?,
        Heads::of(call, 1)?,
        Heads::of(call, 2)?,
    );
    let (bonus, decay) = (call.src(3)?, Heads::of(call, 4)?);
    let size = k.operand.ne[0];
    Ok(recur(
        k.operand.ne,
        &call.src(5)?,
        |head, token, state, out| {
            let bonus = &bonus.values[head * size..][..size];
            let (k, v, r) = (k.get(head, token), v.get(head, token), r.get(head, token));
            let decay = decay.get(head, token);
            for (i, row) in state.chunks_mut(size).enumerate() {
                for (j, state) in row.iter_mut().enumerate() {
                    let product = k[i] * v[j];
                    out[j] += r[i] * (product * bonus[i] + *state);
                    *state = *state * decay[i] + product;
                }
            }
        },
    ))
}

/// GATED_LINEAR_ATTN: `S = g S + k v`, then `out = scale q S`.
pub fn gated_linear_attn(call: &Call<'_>) -> Result<Vec<f64>> {
    let (k, v, q) = (
        Heads::of(call, 0)?,
        Heads::of(call, 1)?,
        Heads::of(call, 2)?,
    );
    let (gate, scale) = (Heads::of(call, 3)?, call.float(0));
    let size = k.operand.ne[0];
    Ok(recur(
        k.operand.ne,
        &call.src(4)?,
        |head, token, state, out| {
            let (k, v, q) = (k.get(head, token), v.get(head, token), q.get(head, token));
            let gate = gate.get(head, token);
            for (i, row) in state.chunks_mut(size).enumerate() {
                for (j, state) in row.iter_mut().enumerate() {
                    *state = *state * gate[i] + k[i] * v[j];
                    out[j] += scale * q[i] * *state;
                }
            }
        },
    ))
}

/// RWKV_WKV7: `S = S w + v k + (S a) b`, then `out = S r`, where rows of `S` belong to `v`.
pub fn rwkv_wkv7(call: &Call<'_>) -> Result<Vec<f64>> {
    let (r, w, k) = (
        Heads::of(call, 0)?,
        Heads::of(call, 1)?,
        Heads::of(call, 2)?,
    );
    let (v, a, b) = (
        Heads::of(call, 3)?,
        Heads::of(call, 4)?,
        Heads::of(call, 5)?,
    );
    let size = k.operand.ne[0];
    Ok(recur(
        k.operand.ne,
        &call.src(6)?,
        |head, token, state, out| {
            let (w, k, v) = (w.get(head, token), k.get(head, token), v.get(head, token));
            let (a, b) = (a.get(head, token), b.get(head, token));
            for (i, row) in state.chunks_mut(size).enumerate() {
                let along = dot(row, a);
                for (j, state) in row.iter_mut().enumerate() {
                    *state = *state * w[j] + v[i] * k[j] + along * b[j];
                }
                out[i] = dot(row, r.get(head, token));
            }
        },
    ))
}

/// GATED_DELTA_NET: operands are queries, keys, values, the gate's logarithm (one of a head, or one of each column), beta, and
/// states. Queries and keys are repeated over heads, and each shared by neighbouring sequences.
pub fn gated_delta_net(call: &Call<'_>) -> Result<Vec<f64>> {
    let (q, k, v) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let (gate, beta, states) = (call.src(3)?, call.src(4)?, call.src(5)?);
    let [size, heads, tokens, sequences] = v.ne;
    let square = size * size;
    let scale = 1.0 / (size as f64).sqrt();
    let mut snapshots = Snapshots::new(call, square * heads * sequences, tokens);
    let mut out = vec![0.0; v.values.len()];
    for [head, sequence, ..] in places([heads, sequences, 1, 1]) {
        let first = (sequence * heads + head) * square;
        let mut state = states.values[first..][..square].to_vec();
        for token in 0..tokens {
            let shared =
                |a: &Operand<'_>| (head % a.ne[1], token, sequence / (sequences / a.ne[3]));
            let ((h, t, s), (kh, kt, ks)) = (shared(&q), shared(&k));
            let (q, k) = (q.row(h, t, s), k.row(kh, kt, ks));
            let (v, gate) = (
                v.row(head, token, sequence),
                gate.row(head, token, sequence),
            );
            let beta = beta.at([0, head, token, sequence]);
            let at = flat([size, heads, tokens, sequences], [0, head, token, sequence]);
            for (j, row) in state.chunks_mut(size).enumerate() {
                for (i, state) in row.iter_mut().enumerate() {
                    *state *= gate[i % gate.len()].exp();
                }
                let delta = (v[j] - dot(row, k)) * beta;
                row.iter_mut()
                    .zip(k)
                    .for_each(|(state, k)| *state += delta * k);
                out[at + j] = scale * dot(row, q);
            }
            snapshots.keep(token, first, &state);
        }
    }
    out.extend(snapshots.slots);
    Ok(out)
}
