//! Sums, products and gates of two operands, and windows.

use ggml_rs::DType::{self, BF16, F16, F32, I32};
use ggml_rs::{GluOp, Result, Tensor};

use crate::draw::Draw;
use crate::table::family;

/// Two operands, the second of which is repeated. Both may be the same tensor.
fn two<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let a = d.of(&[F32, F32, F16, BF16])?;
    if d.one_in(8) {
        return Ok((a, a));
    }
    let ne = d.part(a.shape().ne());
    let dtype = if d.one_in(4) { F32 } else { a.dtype() };
    Ok((a, d.tensor(dtype, ne)?))
}

/// Blocks to which floats are added, or floats.
fn sum<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    if !d.one_in(4) {
        return two(d);
    }
    let a = d.of(&DType::ALL)?;
    Ok((a, d.tensor(F32, a.shape().ne())?))
}

/// An operand and one element.
fn one<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let a = d.of(&[F32, F32, F16, BF16, DType::Q8_0])?;
    let dtype = if d.one_in(2) { F32 } else { a.dtype() };
    let dtype = if dtype.is_quantized() { F32 } else { dtype };
    Ok((a, d.tensor(dtype, [1; 4])?))
}

const GATES: [GluOp; 5] = [
    GluOp::Reglu,
    GluOp::Geglu,
    GluOp::Swiglu,
    GluOp::GegluErf,
    GluOp::GegluQuick,
];

fn halves<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, GluOp)> {
    let dtype = d.pick(&[F32, F32, F16, BF16]);
    let [n0, n1, n2, n3] = d.shape(dtype);
    Ok((d.plain(dtype, [2 * n0, n1, n2, n3])?, d.pick(&GATES)))
}

fn gated<'g>(d: &mut Draw<'g>, dtypes: &[DType]) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let a = d.packed(dtypes)?;
    Ok((a, d.plain(a.dtype(), a.shape().ne())?))
}

/// A tensor, another for a window of it, and the window.
struct Window<'g> {
    a: Tensor<'g>,
    b: Tensor<'g>,
    nb: [usize; 3],
    offset: usize,
}

/// A window of at most `rank` dimensions.
fn window<'g>(d: &mut Draw<'g>, dtypes: &[DType], rank: usize) -> Result<Window<'g>> {
    let a = d.packed(dtypes)?;
    let mut ne = [1; 4];
    for (i, n) in ne.iter_mut().enumerate().take(rank) {
        *n = 1 + d.below(a.shape().ne()[i]);
    }
    let b = d.tensor(a.dtype(), ne)?;
    let [nb0, nb @ ..] = a.strides();
    let offset = nb0 * d.below(a.shape().ne()[0] - ne[0].min(a.shape().ne()[0]) + 1);
    Ok(Window {
        a,
        b,
        nb: d.sizes(nb),
        offset: d.size(offset),
    })
}

family! {
    add(d) { let (a, b) = sum(d)?; } a(b);
    sub(d) { let (a, b) = two(d)?; } a(b);
    mul(d) { let (a, b) = two(d)?; } a(b);
    div(d) { let (a, b) = two(d)?; } a(b);
    add_inplace(d) { let (a, b) = sum(d)?; } a(b);
    sub_inplace(d) { let (a, b) = two(d)?; } a(b);
    mul_inplace(d) { let (a, b) = two(d)?; } a(b);
    div_inplace(d) { let (a, b) = two(d)?; } a(b);
    add_cast(d) {
        let a = d.of(&[F16, BF16, DType::Q8_0, DType::Q4_0, DType::Q4_K])?;
        let b = d.tensor(F32, a.shape().ne())?;
        let dtype = d.pick(&[F32, F32, F16, DType::Q8_0]);
    } a(b, dtype);
    add1(d) { let (a, b) = one(d)?; } a(b);
    add1_inplace(d) { let (a, b) = one(d)?; } a(b);
    scale(d) { let a = d.packed(&[F32, F32, BF16])?; let factor = d.float(0.5); } a(factor);
    scale_inplace(d) { let a = d.packed(&[F32, F32, BF16])?; let factor = d.float(0.5); } a(factor);
    scale_bias(d) {
        let a = d.packed(&[F32])?;
        let (factor, bias) = (d.float(0.5), d.float(1.0));
    } a(factor, bias);
    scale_bias_inplace(d) {
        let a = d.packed(&[F32])?;
        let (factor, bias) = (d.float(0.5), d.float(1.0));
    } a(factor, bias);
    glu(d) { let (a, function) = halves(d)?; } a(function);
    glu_swapped(d) { let (a, function) = halves(d)?; } a(function);
    glu_split(d) {
        let (a, b) = gated(d, &[F32, F16, BF16])?;
        let function = d.pick(&GATES);
    } a(b, function);
    swiglu_oai(d) {
        let (a, b) = gated(d, &[F32])?;
        let (alpha, limit) = (d.float(1.7), d.float(7.0));
    } a(b, alpha, limit);
    swiglu_clamp(d) {
        let (a, b) = gated(d, &[F32, F16])?;
        let limit = d.float(7.0);
    } a(b, limit);
    acc(d) { let Window { a, b, nb, offset } = window(d, &[F32], 4)?; } a(b, nb, offset);
    acc_inplace(d) { let Window { a, b, nb, offset } = window(d, &[F32], 4)?; } a(b, nb, offset);
    set(d) { let Window { a, b, nb, offset } = window(d, &[F32, I32], 4)?; } a(b, nb, offset);
    set_inplace(d) { let Window { a, b, nb, offset } = window(d, &[F32, I32], 4)?; } a(b, nb, offset);
    set_1d(d) { let Window { a, b, offset, .. } = window(d, &[F32, I32], 1)?; } a(b, offset);
    set_1d_inplace(d) { let Window { a, b, offset, .. } = window(d, &[F32, I32], 1)?; } a(b, offset);
    set_2d(d) {
        let Window { a, b, nb: [nb1, ..], offset } = window(d, &[F32, I32], 2)?;
    } a(b, nb1, offset);
    set_2d_inplace(d) {
        let Window { a, b, nb: [nb1, ..], offset } = window(d, &[F32, I32], 2)?;
    } a(b, nb1, offset);
}
