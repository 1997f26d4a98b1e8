//! Views, copies, and parts of tensors.

use ggml_rs::check::Data;

use super::Case;

fn views() -> Vec<Case> {
    vec![
        Case::new("RESHAPE", "plain", |t| {
            let a = t.trained([6, 4], Data::unit())?;
            a.mul(a)?.reshape([3, 4, 2])
        }),
        Case::new("RESHAPE", "a gradient that is not contiguous", |t| {
            let a = t.trained([6, 4], Data::unit())?.reshape([3, 2, 4])?;
            a.permute([2, 0, 1, 3])?.cont()
        }),
        Case::new("TRANSPOSE", "used twice", |t| {
            let a = t.trained([4, 4], Data::unit())?;
            a.mul(a.transpose()?)
        }),
        Case::new("PERMUTE", "all dimensions", |t| {
            t.trained([2, 3, 4, 5], Data::unit())?
                .permute([3, 0, 2, 1])?
                .cont()
        }),
        Case::new("PERMUTE", "twice", |t| {
            let a = t.trained([2, 3, 4], Data::unit())?.permute([1, 2, 0, 3])?;
            a.permute([1, 2, 0, 3])?.cont()
        }),
        Case::new("VIEW", "rows of a matrix", |t| {
            let a = t.trained([4, 6], Data::unit())?;
            let [_, nb1, ..] = a.strides();
            a.mul(a)?.view([4, 3], [nb1, 3 * nb1, 3 * nb1], 2 * nb1)
        }),
        Case::new("VIEW", "a block, strided", |t| {
            let a = t.trained([6, 4, 3], Data::unit())?;
            let [_, nb1, nb2, nb3] = a.strides();
            a.mul(a)?
                .view([3, 2, 2], [2 * nb1, nb2, nb3], nb2 + 8)?
                .cont()
        }),
        Case::new("VIEW", "two that overlap", |t| {
            let a = t.trained([10], Data::unit())?;
            let [_, nb1, nb2, nb3] = a.strides();
            let part = |offset| a.view([6], [nb1, nb2, nb3], offset);
            part(0)?.mul(part(12)?)
        }),
        Case::new("VIEW", "of a value that is used again", |t| {
            let a = t.trained([4, 6], Data::unit())?;
            let b = a.mul(a)?;
            let [_, nb1, ..] = b.strides();
            let part = b.view([4, 1], [nb1, nb1, nb1], nb1)?;
            b.mul(part)
        }),
        Case::new("CONT", "of a transposed", |t| {
            let a = t.trained([4, 3], Data::unit())?.transpose()?.cont()?;
            a.mul(a)
        }),
        Case::new("DUP", "of a transposed", |t| {
            let a = t.trained([4, 3], Data::unit())?;
            a.mul(a)?.transpose()?.dup()
        }),
        Case::new("CPY", "into another shape", |t| {
            let a = t.trained([6, 2], Data::unit())?;
            let to = t.builder().empty("to", ggml_rs::DType::F32, [3, 4])?;
            a.mul(a)?.cpy(to)
        }),
        Case::new("CPY", "of a permuted", |t| {
            let a = t.trained([2, 3, 4], Data::unit())?.permute([1, 2, 0, 3])?;
            let to = t.builder().empty("to", ggml_rs::DType::F32, [4, 6])?;
            a.cpy(to)
        }),
    ]
}

pub fn cases() -> Vec<Case> {
    views()
}
