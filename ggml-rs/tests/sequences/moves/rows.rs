//! Rows by ids, and the ids that ops make.

use ggml_rs::DType::{self, BF16, F16, F32, I32};
use ggml_rs::SortOrder;

use crate::table::family;

family! {
    get_rows(d) {
        let a = d.of(&[F32, F32, F16, BF16, I32, DType::Q8_0, DType::Q4_K, DType::IQ2_S])?;
        let [_, rows, n2, n3] = a.shape().ne();
        let list = d.dim();
        let ids = d.rows(&[list, n2, n3], rows, false)?;
    } a(ids);
    get_rows_back(d) {
        let ne = [d.row(F32), d.dim(), 1, 1];
        let dtype = d.pick(&[F32, F16]);
        let a = d.plain(dtype, ne)?;
        let rows = d.dim();
        let like = d.tensor(F32, [ne[0], rows, 1, 1])?;
        let ids = d.rows(&[ne[1]], rows, false)?;
    } a(ids, like);
    set_rows(d) {
        let a = d.of(&[F32, F32, F16, BF16, DType::Q8_0, DType::Q4_0, DType::Q4_K])?;
        let [n0, rows, n2, n3] = a.shape().ne();
        let list = 1 + d.below(rows);
        let dtype = d.pick(&[F32, F32, F16]);
        let b = d.tensor(dtype, [n0, list, n2, n3])?;
        let ids = d.rows(&[list], rows, true)?;
    } a(b, ids);
    add_id(d) {
        let (used, tokens, experts) = (1 + d.below(3), d.dim(), 3 + d.below(3));
        let row = d.row(F32);
        let a = d.tensor(F32, [row, used, tokens, 1])?;
        let b = d.tensor(F32, [row, experts, 1, 1])?;
        let ids = d.experts(used, tokens, experts)?;
    } a(b, ids);
    argsort(d) {
        let a = d.packed(&[F32])?;
        let order = d.pick(&[SortOrder::Ascending, SortOrder::Descending]);
    } a(order);
    argsort_top_k(d) {
        let a = d.packed(&[F32])?;
        let k = 1 + d.below(a.shape().ne()[0]);
        let k = d.size(k);
    } a(k);
    top_k(d) {
        let a = d.packed(&[F32])?;
        let k = 1 + d.below(a.shape().ne()[0]);
        let k = d.size(k);
    } a(k);
    narrow(d) {
        let ids = d.made_rows()?;
        let dim = d.below(3);
        let n = ids.shape().ne()[dim];
        let start = d.below(n);
        let len = 1 + d.below(n - start);
        let [dim, start, len] = d.sizes([dim, start, len]);
    } ids(dim, start, len);
    to_tensor(d) { let ids = d.made_rows()?; } ids();
}
