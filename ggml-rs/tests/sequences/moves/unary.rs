//! Functions of one operand, element by element.

use ggml_rs::DType::{BF16, F16, F32};

use crate::table::family;

family! {
    abs(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sgn(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    neg(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    step(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    tanh(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    elu(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    relu(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sigmoid(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    gelu(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    gelu_erf(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    gelu_quick(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    silu(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    hardswish(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    hardsigmoid(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    exp(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    expm1(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    softplus(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    floor(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    ceil(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    round(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    trunc(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sqr(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sqrt(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    log(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sin(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    cos(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    abs_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sgn_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    neg_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    step_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    tanh_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    elu_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    relu_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sigmoid_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    gelu_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    gelu_erf_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    gelu_quick_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    silu_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    exp_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    expm1_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    softplus_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    floor_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    ceil_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    round_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    trunc_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sqr_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sqrt_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    log_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sin_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    cos_inplace(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    leaky_relu(d) { let a = d.of(&[F32, F16])?; let slope = d.float(0.1); } a(slope);
    leaky_relu_inplace(d) { let a = d.of(&[F32, F16])?; let slope = d.float(0.1); } a(slope);
    clamp(d) { let a = d.of(&[F32, F16])?; let (low, high) = (d.float(-0.5), d.float(0.5)); } a(low, high);
    clamp_inplace(d) { let a = d.of(&[F32, F16])?; let (low, high) = (d.float(-0.5), d.float(0.5)); } a(low, high);
    xielu(d) {
        let a = d.of(&[F32, F16, BF16])?;
        let (n, p, beta, eps) = (d.float(0.8), d.float(0.8), d.float(0.5), d.float(-1e-6));
    } a(n, p, beta, eps);
    fill(d) { let a = d.of(&[F32, F16])?; let value = d.float(3.0); } a(value);
    fill_inplace(d) { let a = d.of(&[F32, F16])?; let value = d.float(3.0); } a(value);
    silu_back(d) { let a = d.of(&[F32, F16])?; let x = d.like(a)?; } a(x);
}
