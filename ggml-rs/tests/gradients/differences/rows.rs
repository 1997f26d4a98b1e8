//! Rows that are chosen by ids.

use ggml_rs::DType::F32;
use ggml_rs::RowIdsOptions;
use ggml_rs::check::Data;

use super::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("GET_ROWS", "rows that repeat", |t| {
            let a = t.trained([4, 5], Data::unit())?;
            let ids = t.row_ids([7], RowIdsOptions::new(5), &[0, 3, 3, 1, 4, 3, 0])?;
            a.mul(a)?.get_rows(ids)
        }),
        Case::new("GET_ROWS", "several matrices", |t| {
            let a = t.trained([4, 5, 2], Data::unit())?;
            let ids = t.row_ids([3, 2], RowIdsOptions::new(5), &[0, 3, 3, 1, 4, 0])?;
            a.get_rows(ids)
        }),
        Case::new("GET_ROWS", "used twice, result transposed", |t| {
            let a = t.trained([4, 5], Data::unit())?;
            let ids = t.row_ids([5], RowIdsOptions::new(5), &[0, 3, 3, 1, 4])?;
            a.get_rows(ids)?.mul(a)?.transpose()?.cont()
        }),
        Case::new("SET_ROWS", "into a value", |t| {
            let a = t.trained([4, 5], Data::unit())?;
            let b = t.trained([4, 2], Data::unit())?;
            let ids = t.row_ids([2], RowIdsOptions::new(5).distinct(), &[3, 0])?;
            a.mul(a)?.set_rows(b.mul(b)?, ids)
        }),
        Case::new("SET_ROWS", "ids repeated over matrices", |t| {
            let a = t.trained([4, 5, 4], Data::unit())?;
            let b = t.trained([4, 2, 4], Data::unit())?;
            let ids = t.row_ids([2, 2], RowIdsOptions::new(5).distinct(), &[3, 0, 1, 4])?;
            a.mul(a)?.set_rows(b, ids)
        }),
        Case::new("SET_ROWS", "into a constant", |t| {
            let a = t.fixed(F32, [4, 5], Data::unit())?;
            let b = t.trained([4, 2], Data::unit())?;
            let ids = t.row_ids([2], RowIdsOptions::new(5).distinct(), &[3, 0])?;
            a.set_rows(b, ids)
        }),
        Case::new("ADD_ID", "ids that repeat", |t| {
            let a = t.trained([4, 2, 3], Data::unit())?;
            let b = t.trained([4, 5], Data::unit())?;
            let ids = t.expert_ids(3, 5, &[0, 3, 3, 1, 4, 3])?;
            a.mul(a)?.add_id(b, ids)
        }),
    ]
}
