//! Views, copies, conversions and arrangements.

use ggml_rs::DType::{
    BF16, F16, F32, I32, IQ4_NL, MXFP4, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q6_K, Q8_0,
};

use super::Pattern;
use crate::draw::Draw;
use crate::fill::Fill;

pub const PATTERNS: &[Pattern] = &[
    ("view", 8, view),
    ("copy", 4, copy),
    ("conversion", 5, conversion),
    ("blocks of zeros", 3, zero_blocks),
    ("arrangement", 5, arrangement),
    ("rows", 4, rows),
];

const AXES: [[usize; 4]; 6] = [
    [0, 2, 1, 3],
    [1, 0, 2, 3],
    [3, 2, 1, 0],
    [0, 1, 3, 2],
    [2, 0, 1, 3],
    [1, 2, 0, 3],
];

fn view(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F32, F16]);
    let a = d.any(dtype)?;
    let ne = d.ne(a);
    let [n0, n1, n2, n3] = ne;
    match d.below(5) {
        0 => d.op("transpose", &[a]),
        1 => {
            let axes = d.pick(&AXES);
            d.op_with("permute", &[a], &axes, &[])
        }
        2 => {
            let shapes = [
                [n0, n1 * n2, n3, 1],
                [n0 * n1, n2, n3, 1],
                [n0, 1, n1, n2 * n3],
                [n0 * n1 * n2 * n3, 1, 1, 1],
                [1, n0 * n1 * n2 * n3, 1, 1],
            ];
            let shape = d.pick(&shapes);
            d.op_with("reshape", &[a], &shape, &[])
        }
        3 => {
            // Every second row.
            let nb = d.tensor(a).strides();
            let n = [n0, n1.div_ceil(2), n2, n3, 2 * nb[1], nb[2], nb[3], 0];
            d.op_with("view", &[a], &n, &[])
        }
        _ => {
            let dim = d.below(4);
            let mut part = ne;
            part[dim] = 1 + d.below(ne[dim]);
            d.window(a, part, dim)
        }
    }
    .map(drop)
}

fn copy(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    match d.below(3) {
        0 => d.op("cont", &[a]),
        1 => d.op("dup", &[a]),
        _ => {
            let [n0, n1, n2, n3] = d.ne(a);
            d.op_with("cont_reshaped", &[a], &[n0 * n1, n2, n3, 1], &[])
        }
    }
    .map(drop)
}

fn conversion(d: &mut Draw<'_>) -> Option<()> {
    if d.one_in(2) {
        let a = d.f32()?;
        let dtype = d.pick(&[F16, BF16, F16, I32]);
        let there = d.cast(a, dtype)?;
        if d.one_in(2) {
            d.cast(there, F32)?;
        }
        return Some(());
    }
    let dtype = d.pick(&[Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL]);
    let ne = [32 * (1 + d.below(2)), d.dim(), d.pick(&[1, 2]), 1];
    let a = match d.one_in(6) {
        true => d.filled(F32, ne, Fill::Zeros)?,
        false => d.leaf(F32, ne)?,
    };
    let blocks = d.cast(a, dtype)?;
    if d.one_in(2) {
        d.cast(blocks, F32)?;
    }
    Some(())
}

/// Blocks whose scales are zero: what their levels are must not depend on what was in memory before.
fn zero_blocks(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[
        Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, IQ4_NL, MXFP4, Q4_K, Q6_K,
    ]);
    let ne = [dtype.block_len() * (1 + d.below(2)), d.dim(), 1, 1];
    let zeros = d.filled(F32, ne, Fill::Zeros)?;
    let blocks = match d.one_in(2) {
        true => d.cast(zeros, dtype)?,
        false => {
            let cache = d.filled(dtype, ne, Fill::Numbers)?;
            let ids = d.ids([ne[1], 1, 1, 1], ne[1], true)?;
            d.op("set_rows", &[cache, zeros, ids])?
        }
    };
    let read = d.cast(blocks, F32)?;
    let other = d.input(F32, ne)?;
    d.op("add", &[read, other]).map(drop)
}

fn arrangement(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    let ne = d.ne(a);
    match d.below(8) {
        0 | 1 => {
            let axis = d.below(4);
            let mut other = ne;
            other[axis] = 1 + d.below(3);
            let b = d.leaf(F32, other)?;
            d.op_with("concat", &[a, b], &[axis], &[])
        }
        2 => {
            let numbers: Vec<usize> = (0..8).map(|_| d.below(3)).collect();
            d.op_with("pad_ext", &[a], &numbers, &[])
        }
        3 => {
            let shape = ne.map(|n| if n < 9 { n * d.pick(&[1, 1, 2]) } else { n });
            d.op_with("repeat", &[a], &shape, &[])
        }
        4 => {
            // Shifts of -2 to 2 are counted from 0, and stay below their dimension.
            let shift = |n: usize| {
                let most = n.min(3) - 1;
                2 - most + d.below(2 * most + 1)
            };
            let shifts = ne.map(shift);
            d.op_with("roll", &[a], &shifts, &[])
        }
        5 => {
            let n = [d.random.below(ne[0]), d.random.below(ne[0])];
            d.op_with("pad_reflect_1d", &[a], &n, &[])
        }
        6 => {
            let side = d.dim();
            let a = d.computed([side, side, 2, 1])?;
            let part = d.below(2);
            d.op_with("tri", &[a], &[part], &[])
        }
        _ => {
            let ne = [d.pick(&[1, 3, 8, 17]), 1, d.pick(&[1, 2]), 1];
            let a = d.leaf(F32, ne)?;
            d.op("diag", &[a])
        }
    }
    .map(drop)
}

fn rows(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F16, BF16, Q8_0, Q4_0]);
    let a = d.any(dtype)?;
    let [n0, rows, n2, n3] = d.ne(a);
    let list = d.dim();
    if d.one_in(4) {
        let gradient = d.computed([n0, list, 1, 1])?;
        let ids = d.ids([list, 1, 1, 1], rows, false)?;
        let like = [n0, rows, 1, 1];
        return d
            .op_with("get_rows_back", &[gradient, ids], &like, &[])
            .map(drop);
    }
    let ids = match d.one_in(4) && list <= rows {
        true => {
            let values = d.computed([rows, n2, n3, 1])?;
            let order = d.below(2);
            let order = d.op_with("argsort", &[values], &[order], &[])?;
            d.op_with("narrow", &[order], &[0, 0, list], &[])?
        }
        false => d.ids([list, n2, n3, 1], rows, false)?,
    };
    d.op("get_rows", &[a, ids]).map(drop)
}
