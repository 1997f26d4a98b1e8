//! Chains that backends run as one kernel: those of ggml-metal-fusion.cpp, and of ggml-cpu.c. Each also with something in it
//! that must keep it from being fused: a node that is read twice, or is an output, another operand's layout.

use ggml_rs::DType::{F16, F32, Q8_0};

use super::Pattern;
use crate::draw::Draw;
use crate::fill::Fill;

pub const PATTERNS: &[Pattern] = &[
    ("add chain", 6, add_chain),
    ("norm, mul, add", 8, norm_mul_add),
    ("norm, scale", 3, norm_scale),
    ("norm, itself", 4, norm_itself),
    ("snake", 3, snake),
    ("router", 4, router),
    ("mixture", 3, mixture),
    ("convolution, silu", 2, convolution),
    ("delta net, cache", 2, delta_net),
    ("rope, view, set_rows", 4, rope_rows),
];

/// Sums of up to eight addends, some of them what was added before.
fn add_chain(d: &mut Draw<'_>) -> Option<()> {
    let first = d.f32()?;
    let ne = d.ne(first);
    let mut sums = vec![first];
    // Addends in one buffer are what is fused.
    let several = d.below(3) > 0;
    let [n0, n1, n2, n3] = ne;
    let all = match several && n3 == 1 {
        true => Some(d.input(F32, [n0, n1, n2, 8])?),
        false => None,
    };
    let mut sum = first;
    for place in 0..2 + d.below(6) {
        let addend = match (d.below(5), all) {
            (0, _) => sums[d.below(sums.len())],
            (1..4, Some(all)) => {
                let [_, nb1, nb2, nb3] = d.tensor(all).strides();
                let n = [n0, n1, n2, 1, nb1, nb2, nb3, place * nb3];
                d.op_with("view", &[all], &n, &[])?
            }
            _ => d.part(first)?,
        };
        sum = match d.one_in(8) && d.ne(addend) == ne {
            true => d.op("add", &[addend, sum])?,
            false => d.op("add", &[sum, addend])?,
        };
        sums.push(sum);
    }
    Some(())
}

/// A norm of something, and what it is of.
fn normed(d: &mut Draw<'_>) -> Option<(usize, usize)> {
    let ne = d.shape(F32);
    let x = match d.below(3) {
        0 => d.leaf(F32, ne)?,
        1 => d.computed(ne)?,
        _ => d.f32()?,
    };
    let name = d.pick(&["norm", "rms_norm", "rms_norm"]);
    Some((x, d.op_with(name, &[x], &[], &[1e-3])?))
}

fn norm_mul_add(d: &mut Draw<'_>) -> Option<()> {
    let (x, y) = normed(d)?;
    let w = d.part(y)?;
    let product = match d.one_in(4) && d.ne(w) == d.ne(y) {
        true => d.op("mul", &[w, y])?,
        false => d.op("mul", &[y, w])?,
    };
    let b = match d.below(5) {
        0 => y,
        1 => product,
        2 => x,
        3 => w,
        _ => d.part(y)?,
    };
    if d.one_in(4) {
        return Some(());
    }
    match d.one_in(4) && d.ne(b) == d.ne(product) {
        true => d.op("add", &[b, product]),
        false => d.op("add", &[product, b]),
    }
    .map(drop)
}

fn norm_scale(d: &mut Draw<'_>) -> Option<()> {
    let (_, y) = normed(d)?;
    let scaled = match d.one_in(3) {
        true => d.op_with("scale_bias", &[y], &[], &[0.5, 0.25])?,
        false => d.op_with("scale", &[y], &[], &[0.5])?,
    };
    if d.one_in(2) {
        d.op("add", &[scaled, y])?;
    }
    Some(())
}

/// `n * n`, and `n * w + n`.
fn norm_itself(d: &mut Draw<'_>) -> Option<()> {
    let (_, y) = normed(d)?;
    if d.one_in(2) {
        return d.op("mul", &[y, y]).map(drop);
    }
    let w = d.part(y)?;
    let product = d.op("mul", &[y, w])?;
    d.op("add", &[product, y]).map(drop)
}

/// x + sin(a x)^2 / b.
fn snake(d: &mut Draw<'_>) -> Option<()> {
    let channels = d.dim();
    let ne = [d.row(F32), channels, 1, 1];
    let x = d.computed(ne)?;
    let factors = [1, channels, 1, 1];
    let a = match d.one_in(4) {
        // Factors that lie in the memory of x.
        true => d.window(x, factors, 0)?,
        false => d.leaf(F32, factors)?,
    };
    let inverse = d.leaf(F32, factors)?;
    let wave = d.op("mul", &[x, a])?;
    let wave = d.op("sin", &[wave])?;
    let wave = d.op("sqr", &[wave])?;
    let wave = match d.one_in(4) && ne == factors {
        true => d.op("mul", &[inverse, wave])?,
        false => d.op("mul", &[wave, inverse])?,
    };
    let last = match d.below(5) {
        0 => wave,
        1 => d.like(x)?,
        _ => x,
    };
    match d.below(3) {
        0 => d.op("add", &[x, wave]),
        1 if last == x => d.op("add_inplace", &[x, wave]),
        _ => d.op("add", &[wave, last]),
    }
    .map(drop)
}

/// The weights of the experts that a token uses.
fn router(d: &mut Draw<'_>) -> Option<()> {
    let (experts, tokens) = (d.pick(&[2, 4, 5, 8, 16, 33, 64]), d.dim());
    let used = 1 + d.below(experts.min(8));
    let logits = d.computed([experts, tokens, 1, 1])?;
    let shares = d.op("soft_max", &[logits])?;
    let reshaped = d.op_with("reshape", &[shares], &[1, experts, tokens, 1], &[])?;
    let order = d.op_with("argsort", &[shares], &[1], &[])?;
    let ids = d.op_with("narrow", &[order], &[0, 0, used], &[])?;
    let mut weights = d.op("get_rows", &[reshaped, ids])?;
    if d.one_in(4) {
        // Who else reads what the fused kernel leaves out.
        d.op_with("scale", &[shares], &[], &[2.0])?;
    }
    if d.one_in(2) {
        let flat = d.op_with("reshape", &[weights], &[used, tokens, 1, 1], &[])?;
        let sum = d.op("sum_rows", &[flat])?;
        let sum = d.op_with("clamp", &[sum], &[], &[1e-3, 1e3])?;
        let divided = d.op("div", &[flat, sum])?;
        weights = d.op_with("reshape", &[divided], &[1, used, tokens, 1], &[])?;
    }
    if d.one_in(2) {
        d.op_with("scale", &[weights], &[], &[1.5])?;
    }
    if d.one_in(4) {
        d.op("ids_to_tensor", &[ids])?;
    }
    Some(())
}

/// What experts made, weighted and added up.
fn mixture(d: &mut Draw<'_>) -> Option<()> {
    let (n, used, tokens) = (d.row(F32), 2 + d.below(7), d.dim());
    let experts = d.computed([n, used, tokens, 1])?;
    let weights = d.computed([1, used, tokens, 1])?;
    let product = d.op("mul", &[experts, weights])?;
    let [_, nb1, nb2, nb3] = d.tensor(product).strides();
    let mut parts = Vec::new();
    for place in 0..used {
        let n = [n, tokens, 1, 1, nb2, nb3, nb3, place * nb1];
        parts.push(d.op_with("view", &[product], &n, &[])?);
    }
    if d.one_in(4) {
        let (a, b) = (d.below(used), d.below(used));
        parts.swap(a, b);
    }
    if d.one_in(6) {
        parts[1] = parts[0];
    }
    let mut sum = parts[0];
    for &part in &parts[1..] {
        sum = d.op("add", &[sum, part])?;
    }
    if d.one_in(6) {
        d.op_with("scale", &[product], &[], &[0.5])?;
    }
    Some(())
}

fn convolution(d: &mut Draw<'_>) -> Option<()> {
    let (k, n, tokens) = (d.pick(&[2, 3, 4]), d.dim(), d.dim());
    let sequences = d.pick(&[1, 2]);
    let a = d.computed([k - 1 + tokens, n, sequences, 1])?;
    let kernel = d.input(F32, [k, n, 1, 1])?;
    let y = d.op("ssm_conv", &[a, kernel])?;
    let silu = d.op("silu", &[y])?;
    if d.one_in(3) {
        d.op("mul", &[silu, y])?;
    }
    Some(())
}

/// A delta net whose states go to a cache, which others may read.
fn delta_net(d: &mut Draw<'_>) -> Option<()> {
    let (n, heads, tokens) = (32, 1 + d.below(2), 1 + d.below(2));
    let states = 1 + d.below(tokens);
    let row = |d: &mut Draw<'_>| {
        let a = d.filled(F32, [n, heads, tokens, 1], Fill::Numbers)?;
        d.op_with("l2_norm", &[a], &[], &[1e-3])
    };
    let args = [row(d)?, row(d)?, row(d)?];
    let gate = d.filled(F32, [1, heads, tokens, 1], Fill::Positive)?;
    let gate = d.op("neg", &[gate])?;
    let beta = d.filled(F32, [1, heads, tokens, 1], Fill::Positive)?;
    let state = d.input(F32, [n, n, heads, 1])?;
    let [q, k, v] = args;
    let out = d.op_with(
        "gated_delta_net",
        &[q, k, v, gate, beta, state],
        &[states],
        &[],
    )?;
    let all = n * n * heads;
    let offset = 4 * n * heads * tokens;
    let view = [
        all,
        1,
        states,
        1,
        4 * all,
        4 * all,
        4 * all * states,
        offset,
    ];
    let tail = d.op_with("view", &[out], &view, &[])?;
    let cache = d.input(F32, [all, 1, states, 1])?;
    let stored = d.op("cpy", &[tail, cache])?;
    match d.below(4) {
        0 => d.op_with("scale", &[tail], &[], &[0.5]).map(drop),
        1 => d.op_with("scale", &[stored], &[], &[0.5]).map(drop),
        2 => {
            let n = [n * heads, tokens, 1, 1, 4 * n * heads, offset, offset, 0];
            d.op_with("view", &[out], &n, &[]).map(drop)
        }
        _ => Some(()),
    }
}

/// Keys that turn and go to their rows of a cache.
fn rope_rows(d: &mut Draw<'_>) -> Option<()> {
    let (half, heads, tokens) = (d.pick(&[1, 2, 4, 8, 16]), 1 + d.below(3), d.dim());
    let ne = [2 * half, heads, tokens, 1];
    let x = d.leaf(F32, ne)?;
    let positions = d.filled(ggml_rs::DType::I32, [tokens, 1, 1, 1], Fill::Positions)?;
    let dims = 2 * d.below(half + 1);
    let name = d.pick(&["rope", "rope", "rope_inplace", "rope_back"]);
    let mode = d.below(2);
    let turned = d.op_with(name, &[x, positions], &[mode, dims], &[])?;
    let row = 2 * half * heads;
    let turned = match d.tensor(turned).is_contiguous() {
        true => turned,
        false => d.op("cont", &[turned])?,
    };
    let view = [
        row,
        tokens,
        1,
        1,
        4 * row,
        4 * row * tokens,
        4 * row * tokens,
        0,
    ];
    let rows = d.op_with("view", &[turned], &view, &[])?;
    let dtype = match row % 32 {
        0 => d.pick(&[F32, F16, Q8_0]),
        _ => d.pick(&[F32, F16]),
    };
    let cache = d.input(dtype, [row, tokens + 3, 1, 1])?;
    let ids = d.ids([tokens, 1, 1, 1], tokens + 3, true)?;
    let stored = d.op("set_rows", &[cache, rows, ids])?;
    if d.one_in(3) {
        d.op("add", &[turned, x])?;
    }
    if d.one_in(2) {
        let list = d.ids([2, 1, 1, 1], tokens + 3, false)?;
        d.op("get_rows", &[stored, list])?;
    }
    Some(())
}
