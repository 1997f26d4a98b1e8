//! Products of matrices, and what follows them.

use ggml_rs::DType::{self, BF16, F16, F32, Q4_0, Q4_K, Q6_K, Q8_0};

use super::Pattern;
use crate::draw::Draw;

pub const PATTERNS: &[Pattern] = &[
    ("product", 5, product),
    ("product, add, function", 5, product_add),
    ("outer product", 3, outer),
    ("experts", 3, experts),
];

const WEIGHTS: [DType; 8] = [F32, F32, F32, F16, BF16, Q8_0, Q4_0, Q4_K];

/// Two factors in any layout.
fn factors(d: &mut Draw<'_>) -> Option<(usize, usize)> {
    let dtype = d.pick(&WEIGHTS);
    let a = match d.one_in(3) {
        true => d.any(dtype)?,
        false => {
            let ne = [
                d.row(dtype),
                d.pick(&[1, 2, 3, 5, 8, 16, 33]),
                d.pick(&[1, 1, 2]),
                1,
            ];
            d.leaf(dtype, ne)?
        }
    };
    let [k, _, n2, n3] = d.ne(a);
    let (r2, columns) = (d.pick(&[1, 1, 2]), d.pick(&[1, 1, 2, 3, 5, 9, 33]));
    let b = d.leaf(F32, [k, columns, n2 * r2, n3])?;
    Some((a, b))
}

fn multiplied(d: &mut Draw<'_>) -> Option<usize> {
    let (a, b) = factors(d)?;
    let name = d.pick(&["mul_mat", "mul_mat", "mul_mat_float"]);
    d.op(name, &[a, b])
}

fn product(d: &mut Draw<'_>) -> Option<()> {
    multiplied(d).map(drop)
}

fn product_add(d: &mut Draw<'_>) -> Option<()> {
    let y = multiplied(d)?;
    let b = d.part(y)?;
    let mut sum = match d.below(4) {
        0 if d.ne(b) == d.ne(y) => d.op("add", &[b, y])?,
        1 if b != y => d.op("add_inplace", &[y, b])?,
        _ => d.op("add", &[y, b])?,
    };
    if d.one_in(3) {
        sum = d.op("add", &[sum, y])?;
    }
    let name = d.pick(&["relu", "silu", "gelu_erf", "sigmoid"]);
    if d.one_in(2) {
        d.op(name, &[sum])?;
    }
    Some(())
}

fn outer(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F16, Q8_0]);
    let ne = [d.row(dtype), d.dim(), d.pick(&[1, 1, 2]), 1];
    let a = d.leaf(dtype, ne)?;
    let [_, k, n2, n3] = d.ne(a);
    let n = d.below(9) + 1;
    let b = d.leaf(F32, [n, k, n2, n3])?;
    d.op("out_prod", &[a, b]).map(drop)
}

fn experts(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F16, Q8_0, Q4_0, Q6_K]);
    let (count, tokens) = (1 + d.below(5), d.pick(&[1, 2, 3, 8, 33]));
    let used = 1 + d.below(count);
    let ne = [d.row(dtype), d.dim(), count, 1];
    let a = d.input(dtype, ne)?;
    let each = if d.one_in(2) { 1 } else { used };
    let b = d.computed([ne[0], each, tokens, 1])?;
    let ids = match d.one_in(3) {
        true => {
            let logits = d.computed([count, tokens, 1, 1])?;
            let order = d.op_with("argsort", &[logits], &[1], &[])?;
            let ids = d.op_with("narrow", &[order], &[0, 0, used], &[])?;
            d.op("ids_as_experts", &[ids])?
        }
        false => d.experts(used, tokens, count)?,
    };
    let y = d.op("mul_mat_id", &[a, b, ids])?;
    if d.one_in(2) {
        let bias = d.input(F32, [ne[1], count, 1, 1])?;
        d.op("add_id", &[y, bias, ids])?;
    }
    Some(())
}
