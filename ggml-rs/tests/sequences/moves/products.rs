//! Products, their precision and their stagings.

use ggml_rs::DType::{self, BF16, F16, F32};
use ggml_rs::{Precision, Result, Route, Staging, Tensor};

use crate::draw::Draw;
use crate::table::family;

const WEIGHTS: [DType; 8] = [
    F32,
    F32,
    F16,
    BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_K,
    DType::Q6_K,
];

const STAGINGS: [Staging; 4] = [
    Staging::Float,
    Staging::FloatWeights,
    Staging::FloatActivations,
    Staging::Half,
];

fn weights<'g>(d: &mut Draw<'g>) -> Result<Tensor<'g>> {
    match d.one_in(4) {
        true => d.of(&DType::ALL),
        false => d.of(&WEIGHTS),
    }
}

/// The operands of a product, the second of which repeats the first.
fn factors<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let a = weights(d)?;
    let [k, _, n2, n3] = a.shape().ne();
    let (r2, r3) = (d.pick(&[1, 1, 2]), d.pick(&[1, 1, 2]));
    let ne = [k, d.dim(), n2 * r2, n3 * r3];
    let dtype = match d.one_in(6) {
        true => a.dtype(),
        false => F32,
    };
    Ok((a, d.tensor(dtype, ne)?))
}

fn product<'g>(d: &mut Draw<'g>) -> Result<Tensor<'g>> {
    if d.wild() {
        return d.any();
    }
    if d.one_in(4) {
        let (a, b) = outer(d)?;
        return a.out_prod(b);
    }
    let (a, b) = factors(d)?;
    a.mul_mat(b)
}

/// [m, k] and [n, k] of an outer product.
fn outer<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let a = d.of(&[F32, F32, F16, DType::Q8_0, DType::Q4_K])?;
    let [_, k, n2, n3] = a.shape().ne();
    let (r2, r3) = (d.pick(&[1, 1, 2]), d.pick(&[1, 1, 2]));
    let ne = [d.row(F32), k, n2 * r2, n3 * r3];
    Ok((a, d.tensor(F32, ne)?))
}

family! {
    mul_mat(d) { let (a, b) = factors(d)?; } a(b);
    mul_mat_hadamard(d) { let (a, b) = factors(d)?; } a(b);
    out_prod(d) { let (a, b) = outer(d)?; } a(b);
    mul_mat_id(d) {
        let dtype = match d.one_in(4) {
            true => d.pick(&DType::ALL),
            false => d.pick(&WEIGHTS),
        };
        let experts = 1 + d.below(5);
        let ne = [d.row(dtype), d.dim(), experts, 1];
        let a = d.plain(dtype, ne)?;
        let used = 1 + d.below(experts);
        let tokens = d.dim();
        let rows = if d.one_in(2) { 1 } else { used };
        let b = d.plain(F32, [ne[0], rows, tokens, 1])?;
        let ids = d.experts(used, tokens, experts)?;
    } a(b, ids);
    set_src_precision(d) {
        let a = product(d)?;
        let precision = d.pick(&[
            Precision::Undefined,
            Precision::F32,
            Precision::Bf16,
            Precision::F16,
            Precision::Q8,
            Precision::Q4,
        ]);
        let source = d.below(2);
        let source = d.size(source);
    } a(precision, source);
    set_staging(d) { let a = product(d)?; let staging = d.pick(&STAGINGS); } a(staging);
    set_route(d) { let a = product(d)?; let route = d.pick(&[Route::Auto, Route::MatVec, Route::Direct]); } a(route);
}
