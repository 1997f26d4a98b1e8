//! Single ops on whatever there is.

use ggml_rs::DType::{BF16, F16, F32};

use super::Pattern;
use crate::draw::Draw;
use crate::fill::Fill;

pub const PATTERNS: &[Pattern] = &[
    ("function", 6, function),
    ("function in place", 4, function_in_place),
    ("binary", 6, binary),
    ("binary in place", 4, binary_in_place),
    ("self-use", 5, self_use),
    ("gate", 3, gate),
    ("norm", 3, norm),
    ("softmax", 4, soft_max),
    ("reduction", 4, reduction),
    ("only the CPU runs it", 3, only_the_cpu),
];

const FUNCTIONS: [&str; 19] = [
    "abs",
    "neg",
    "sgn",
    "step",
    "relu",
    "tanh",
    "sigmoid",
    "silu",
    "gelu",
    "gelu_erf",
    "gelu_quick",
    "elu",
    "hardswish",
    "softplus",
    "floor",
    "round",
    "sqr",
    "sin",
    "cos",
];

fn function(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F32, F32, F16, BF16]);
    let a = d.any(dtype)?;
    match d.below(6) {
        0 => d.op_with("scale", &[a], &[], &[0.5]),
        1 => d.op_with("scale_bias", &[a], &[], &[0.5, 1.0]),
        2 => d.op_with("clamp", &[a], &[], &[-0.5, 1.0]),
        3 => d.op_with("leaky_relu", &[a], &[], &[0.1]),
        _ => {
            let name = d.pick(&FUNCTIONS);
            d.op(name, &[a])
        }
    }
    .map(drop)
}

fn function_in_place(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    match d.below(5) {
        0 => d.op_with("scale_inplace", &[a], &[], &[0.5]),
        1 => d.op_with("scale_bias_inplace", &[a], &[], &[0.5, 1.0]),
        2 => d.op_with("clamp_inplace", &[a], &[], &[-0.5, 1.0]),
        3 if d.one_in(3) => d.op_with("fill_inplace", &[a], &[], &[0.25]),
        _ => {
            let name = d.pick(&[
                "relu_inplace",
                "neg_inplace",
                "abs_inplace",
                "tanh_inplace",
                "silu_inplace",
                "sqr_inplace",
                "sin_inplace",
            ]);
            d.op(name, &[a])
        }
    }
    .map(drop)
}

fn binary(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F32, F32, F16]);
    let a = d.any(dtype)?;
    if d.one_in(5) {
        let ne = d.ne(a);
        let b = d.filled(F32, ne, Fill::Positive)?;
        return d.op("div", &[a, b]).map(drop);
    }
    let b = d.part(a)?;
    let name = d.pick(&["add", "add", "sub", "mul"]);
    d.op(name, &[a, b]).map(drop)
}

fn binary_in_place(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    if d.one_in(6) {
        let ne = d.ne(a);
        let b = d.filled(F32, ne, Fill::Positive)?;
        return d.op("div_inplace", &[a, b]).map(drop);
    }
    let b = d.part(a)?;
    let name = d.pick(&["add_inplace", "sub_inplace", "mul_inplace"]);
    d.op(name, &[a, b]).map(drop)
}

/// A tensor that is both operands of what comes next, or comes back later.
fn self_use(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    let b = d.like(a)?;
    let name = d.pick(&["add", "mul", "sub"]);
    let sum = d.op(name, &[a, b])?;
    let name = d.pick(&["add", "add", "mul"]);
    match d.below(3) {
        0 => d.op(name, &[sum, sum]).map(drop),
        1 => {
            let c = d.like(a)?;
            let next = d.op("add", &[sum, c])?;
            d.op(name, &[next, sum]).map(drop)
        }
        _ => {
            let twice = d.op(name, &[sum, sum])?;
            d.op("add", &[twice, sum]).map(drop)
        }
    }
}

fn gate(d: &mut Draw<'_>) -> Option<()> {
    let dtype = d.pick(&[F32, F32, F32, F16]);
    let gate = d.below(5);
    if d.one_in(2) {
        let mut ne = d.shape(dtype);
        ne[0] *= 2;
        let a = d.leaf(dtype, ne)?;
        let name = d.pick(&["glu", "glu_swapped"]);
        return d.op_with(name, &[a], &[gate], &[]).map(drop);
    }
    let a = d.any(dtype)?;
    let b = d.like(a)?;
    match dtype == F32 && d.one_in(5) {
        true => d.op_with("swiglu_oai", &[a, b], &[], &[1.7, 7.0]),
        false => d.op_with("glu_split", &[a, b], &[gate], &[]),
    }
    .map(drop)
}

fn norm(d: &mut Draw<'_>) -> Option<()> {
    const EPS: [f32; 1] = [1e-3];
    let a = d.f32()?;
    if d.one_in(5) {
        let groups = 1 + d.below(3);
        let ne = [d.dim(), d.dim(), groups * (1 + d.below(2)), 2];
        let a = d.computed(ne)?;
        return d.op_with("group_norm", &[a], &[groups], &EPS).map(drop);
    }
    let name = d.pick(&[
        "norm",
        "rms_norm",
        "l2_norm",
        "norm_inplace",
        "rms_norm_inplace",
    ]);
    d.op_with(name, &[a], &[], &EPS).map(drop)
}

fn soft_max(d: &mut Draw<'_>) -> Option<()> {
    let a = d.packed()?;
    if d.one_in(3) {
        let name = d.pick(&["soft_max", "soft_max_inplace"]);
        return d.op(name, &[a]).map(drop);
    }
    let [n0, n1, n2, _] = d.ne(a);
    let dtype = d.pick(&[F32, F16]);
    let mask = d.filled(dtype, [n0, n1, 1, 1], Fill::Mask)?;
    let bias = d.pick(&[0.0, 0.0, 8.0]);
    let sinks = d.one_in(3).then(|| d.input(F32, [n2, 1, 1, 1])).flatten();
    let args: Vec<usize> = [Some(a), Some(mask), sinks].into_iter().flatten().collect();
    d.op_with("soft_max_ext", &args, &[], &[0.5, bias])
        .map(drop)
}

fn reduction(d: &mut Draw<'_>) -> Option<()> {
    let a = d.f32()?;
    let name = d.pick(&["sum", "sum_rows", "mean", "max_rows", "cumsum", "argmax"]);
    d.op(name, &[a]).map(drop)
}

/// Divides a graph that is scheduled: Metal refuses these.
fn only_the_cpu(d: &mut Draw<'_>) -> Option<()> {
    let a = d.packed()?;
    match d.below(6) {
        0 => {
            let one = d.input(F32, [1; 4])?;
            d.op("add1", &[a, one])
        }
        1 => d.op_with("diag_mask_zero", &[a], &[1], &[]),
        2 => {
            let ne = d.ne(a).map(|n| if n % 2 == 0 { n / 2 } else { n });
            d.op_with("repeat_back", &[a], &ne, &[])
        }
        3 => {
            let y = d.like(a)?;
            d.op_with("rms_norm_back", &[a, y], &[], &[1e-3])
        }
        4 => {
            let other = d.like(a)?;
            let labels = d.op("soft_max", &[other])?;
            d.op("cross_entropy_loss", &[a, labels])
        }
        _ => {
            let y = d.op("soft_max", &[a])?;
            d.op_with("soft_max_ext_back", &[a, y], &[], &[0.5])
        }
    }
    .map(drop)
}
