//! Writes to memory that others read: what comes before a write reads the old values, what comes behind it the new ones.

use ggml_rs::DType::{F16, F32, I32, IQ4_NL, Q4_0, Q8_0};

use super::Pattern;
use crate::draw::Draw;
use crate::fill::Fill;

pub const PATTERNS: &[Pattern] = &[
    ("copy into a view", 8, copy_into),
    ("window written", 5, window_written),
    ("rows written", 4, rows_written),
    ("dup in place", 2, dup_in_place),
    ("step of an optimizer", 4, step),
    ("write into a parameter", 3, into_param),
    ("read, write, read", 5, read_write_read),
];

/// A place to write to: `ne` of `dtype` in something larger, and turned or with gaps.
fn place(d: &mut Draw<'_>, dtype: ggml_rs::DType, ne: [usize; 4]) -> Option<usize> {
    let [n0, n1, n2, n3] = ne;
    let block = dtype.block_len();
    match d.below(7) {
        0 if block == 1 => {
            let whole = d.input(dtype, [n1, n0, n2, n3])?;
            d.op("transpose", &[whole])
        }
        1 => {
            let whole = d.input(dtype, [n0, n2, n1, n3])?;
            d.op_with("permute", &[whole], &[0, 2, 1, 3], &[])
        }
        2 => {
            let whole = d.input(dtype, [n0 + 3 * block, n1, n2, n3])?;
            d.window(whole, ne, 1)
        }
        3 => {
            let whole = d.input(dtype, [n0, n1 + 2, n2, n3])?;
            d.window(whole, ne, 1)
        }
        4 => {
            // Every second row.
            let whole = d.input(dtype, [n0, 2 * n1, n2, n3])?;
            let nb = d.tensor(whole).strides();
            let n = [n0, n1, n2, n3, 2 * nb[1], nb[2], nb[3], 0];
            d.op_with("view", &[whole], &n, &[])
        }
        5 if block == 1 => {
            // Other dimensions, the same elements.
            d.input(dtype, [n0 * n1, n2, n3, 1])
        }
        _ => d.input(dtype, ne),
    }
}

fn copy_into(d: &mut Draw<'_>) -> Option<()> {
    let a = match d.one_in(6) {
        true => d.any(F16)?,
        false => d.f32()?,
    };
    let ne = d.ne(a);
    let dtype = match ne[0] % 32 {
        0 => d.pick(&[F32, F32, F32, F16, Q8_0, Q4_0]),
        _ => d.pick(&[F32, F32, F32, F16, I32]),
    };
    let to = place(d, dtype, ne)?;
    if d.one_in(4) && dtype == F32 {
        d.op_with("scale", &[to], &[], &[2.0]);
    }
    let written = d.op("cpy", &[a, to])?;
    if d.one_in(3) && dtype == F32 {
        d.op_with("scale", &[written], &[], &[0.5]);
    }
    if d.one_in(4) && dtype == F32 {
        d.op("neg", &[to]);
    }
    Some(())
}

fn window_written(d: &mut Draw<'_>) -> Option<()> {
    let a = d.packed()?;
    let ne = d.ne(a);
    let part = ne.map(|n| 1 + d.below(n));
    let b = d.leaf(F32, part)?;
    let nb = d.tensor(a).strides();
    let offset: usize = (0..4).map(|i| nb[i] * d.below(ne[i] - part[i] + 1)).sum();
    let name = d.pick(&["acc", "acc_inplace", "set", "set_inplace"]);
    d.op_with(name, &[a, b], &[nb[1], nb[2], nb[3], offset], &[])
        .map(drop)
}

fn rows_written(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F16, Q8_0, IQ4_NL]);
    let ne = d.shape(dtype);
    let to = place(d, dtype, ne)?;
    let [n0, rows, n2, n3] = d.ne(to);
    let list = 1 + d.below(rows);
    let b = match d.one_in(4) {
        true => d.filled(F32, [n0, list, n2, n3], Fill::Zeros)?,
        false => d.leaf(F32, [n0, list, n2, n3])?,
    };
    let ids = d.ids([list, 1, 1, 1], rows, true)?;
    let stored = d.op("set_rows", &[to, b, ids])?;
    match dtype {
        F32 if d.one_in(3) => d.op("neg", &[stored]).map(drop),
        // What a block of zeros reads back as, and adds.
        IQ4_NL => {
            let read = d.cast(stored, F32)?;
            d.op("add", &[read, read]).map(drop)
        }
        _ => Some(()),
    }
}

fn dup_in_place(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    let dup = d.op("dup_inplace", &[a])?;
    d.op("neg", &[dup]).map(drop)
}

fn step(d: &mut Draw<'_>) -> Option<()> {
    let ne = d.shape(F32);
    let a = d.param(ne)?;
    let gradient = d.computed(ne)?;
    let before = d.one_in(2).then(|| d.op_with("scale", &[a], &[], &[1.0]));
    let adamw = d.one_in(2);
    let options = Fill::Options { adamw };
    let step = match adamw {
        true => {
            let m = d.filled(F32, ne, Fill::Numbers)?;
            let v = d.filled(F32, ne, Fill::Positive)?;
            let options = d.filled(F32, [7, 1, 1, 1], options)?;
            let step = d.op("opt_step_adamw", &[a, gradient, m, v, options])?;
            if d.one_in(2) {
                d.op_with("scale", &[m], &[], &[0.5])?;
            }
            step
        }
        false => {
            let options = d.filled(F32, [2, 1, 1, 1], options)?;
            d.op("opt_step_sgd", &[a, gradient, options])?
        }
    };
    if let Some(Some(before)) = before {
        d.op("sub", &[before, step])?;
    }
    Some(())
}

/// What a parameter holds is written through a view of it.
fn into_param(d: &mut Draw<'_>) -> Option<()> {
    let ne = d.shape(F32);
    let a = d.param(ne)?;
    let dim = d.below(2);
    let mut part = ne;
    part[dim] = 1 + d.below(ne[dim]);
    let view = d.window(a, part, dim)?;
    let b = d.leaf(F32, part)?;
    match d.below(3) {
        0 => d.op("cpy", &[b, view]),
        1 => d.op("add_inplace", &[view, b]),
        _ => d.op_with("scale_inplace", &[view], &[], &[0.5]),
    }
    .map(drop)
}

/// Looks at one memory before and after it is written.
fn read_write_read(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    let other = d.part(a)?;
    let before = d.op_with("scale_bias", &[a], &[], &[1.0, 0.5])?;
    let view = match d.one_in(2) {
        true => d.op("transpose", &[a])?,
        false => a,
    };
    let written = d.op("add_inplace", &[a, other])?;
    let after = d.op("neg", &[view])?;
    if d.one_in(2) {
        d.op("mul", &[before, written])?;
    }
    if view == a {
        d.op("add", &[after, before])?;
    }
    Some(())
}
