//! Copies.

use ggml_rs::DType::{self, BF16, F16, F32, I32};

use crate::table::family;

const FROM: [DType; 9] = [
    F32,
    F32,
    F32,
    F16,
    BF16,
    I32,
    DType::Q8_0,
    DType::Q4_K,
    DType::IQ4_NL,
];

family! {
    dup(d) { let a = d.of(&DType::ALL)?; } a();
    dup_inplace(d) { let a = d.of(&DType::ALL)?; } a();
    cont(d) { let a = d.of(&DType::ALL)?; } a();
    cont_reshaped(d) {
        let a = d.of(&[F32, F16, I32])?;
        let [n0, n1, n2, n3] = a.shape().ne();
        let ne = d.sizes([n0 * n1, n2, 1, n3]);
    } a(ne);
    cast(d) {
        let a = d.of(&FROM)?;
        let dtype = match d.one_in(2) {
            true => d.pick(&[F32, F16, BF16, I32]),
            false => d.pick(&DType::ALL),
        };
    } a(dtype);
    cpy(d) {
        let a = d.of(&FROM)?;
        let dtype = match d.one_in(3) {
            true => d.pick(&[F32, F16, BF16, I32, DType::Q8_0, DType::Q4_0]),
            false => a.dtype(),
        };
        let to = match d.one_in(3) {
            true => d.g.empty("", dtype, a.shape())?,
            false => d.tensor(dtype, a.shape().ne())?,
        };
    } a(to);
}
