//! Rows chosen by ids.

use ggml_sys as sys;

use crate::dtype::DType::{self, F16, F32, I32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::{ExpertIds, RowIds, Tensor};
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// The rows that the ids name: `a` [n, rows, m2, m3] and ids [r, m2, m3] give [n, r, m2, m3] with
    /// `out[:, i, j, k] = a[:, ids[i, j, k], j, k]`, in F32 (I32 where `a` is I32). Quantized rows are dequantized.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless dimensions 1 and 2 of the ids are 2 and 3 of `a`, and the ids stay below
    /// `ne[1]` of `a`; [`Error::DType`](crate::Error::DType) for I64 ids, and an `a` that neither is a float, nor I32, nor
    /// dequantizes.
    #[doc(alias = "ggml_get_rows")]
    #[track_caller]
    pub fn get_rows(self, ids: RowIds<'g>) -> Result<Self> {
        let at = here();
        check_get_rows(self.layout(), ids.tensor.layout(), ids.rows).at(at)?;
        // SAFETY: the tensors are alive, the check mirrors ggml_get_rows' assertions, and the ids are below ne[1].
        self.make("get_rows", |context| unsafe {
            sys::ggml_get_rows(context, self.as_ptr(), ids.tensor.as_ptr())
        })
    }

    /// The gradient of [`Tensor::get_rows`]: `self` [n, r] is added to the rows that the ids `[r]` name, of zeros in the shape
    /// [n, rows] of `like`. F32. Rows that are named more than once add up.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless all are matrices, there is an id for each row, and the ids stay below
    /// `ne[1]` of `like`; [`Error::DType`](crate::Error::DType) for I64 ids, and gradients that are neither F32 nor F16;
    /// [`Error::Layout`](crate::Error::Layout) for ids with gaps.
    #[doc(alias = "ggml_get_rows_back")]
    #[track_caller]
    pub fn get_rows_back(self, ids: RowIds<'g>, like: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_get_rows_back(self.layout(), ids.tensor.layout(), like.layout(), ids.rows).at(at)?;
        // SAFETY: the tensors are alive, the check is stricter than ggml_get_rows_back, which does not compare the number
        // of ids with that of rows, and the ids are below ne[1] of the result.
        self.make("get_rows_back", |context| unsafe {
            let (a, ids, like) = (self.as_ptr(), ids.tensor.as_ptr(), like.as_ptr());
            sys::ggml_get_rows_back(context, a, ids, like)
        })
    }

    /// Writes rows in place: `self` [n, rows, m2, m3] takes `b` [n, r, m2, m3] with
    /// `self[:, ids[i, j % c1, k % c2], j, k] = b[:, i, j, k]` for ids [r, c1, c2]. The result is a view of `self`.
    ///
    /// Values are rounded to the type of `self`. What is written, and when: see [`Tensor::cpy`]. The ids must be distinct,
    /// because a GPU writes rows side by side.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless the ids are distinct; [`Error::Shape`](crate::Error::Shape) unless
    /// shapes fit as above and the ids stay below `ne[1]` of `self`; [`Error::Layout`](crate::Error::Layout) for rows that
    /// are not packed, elements of `self` that share memory with each other or with `b`;
    /// [`Error::DType`](crate::Error::DType) unless `b` is F32 or F16, and for a type of `self` that is not written.
    #[doc(alias = "ggml_set_rows")]
    #[track_caller]
    pub fn set_rows(self, b: Tensor<'g>, ids: RowIds<'g>) -> Result<Self> {
        let at = here();
        let same_memory = self.base() == b.base();
        check_set_rows(
            self.layout(),
            b.layout(),
            ids.tensor.layout(),
            ids.rows,
            ids.distinct,
            same_memory,
        )
        .at(at)?;
        // SAFETY: the tensors are alive, the check mirrors ggml_set_rows' assertions, and the ids are distinct and below
        // ne[1].
        self.make("set_rows", |context| unsafe {
            sys::ggml_set_rows(context, self.as_ptr(), b.as_ptr(), ids.tensor.as_ptr())
        })
    }

    /// Adds the row of each token's expert: `a` [n, used, tokens] of F32, `b` [n, experts] and ids [used, tokens] give
    /// `out[:, e, t] = a[:, e, t] + b[:, ids[e, t]]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[0]` agree, the ids are as many as rows of `a`, and `b` has a row for
    /// every expert; [`Error::DType`](crate::Error::DType) unless both are F32.
    #[doc(alias = "ggml_add_id")]
    #[track_caller]
    pub fn add_id(self, b: Tensor<'g>, ids: ExpertIds<'g>) -> Result<Self> {
        let at = here();
        check_add_id(self.layout(), b.layout(), ids.tensor.layout(), ids.experts).at(at)?;
        // SAFETY: the tensors are alive, the check mirrors ggml_add_id's assertions, and the ids are below ne[1] of b.
        self.make("add_id", |context| unsafe {
            sys::ggml_add_id(context, self.as_ptr(), b.as_ptr(), ids.tensor.as_ptr())
        })
    }
}

/// Ids beyond the rows would be read, or written, as if they were there.
fn check_bound(refusal: &Refusal, rows: usize, of: usize) -> Checked {
    if rows > of {
        return Err(refusal.shape(format!(
            "the ids choose from {rows} rows, and there are {of}"
        )));
    }
    Ok(())
}

fn check_id_type(refusal: &Refusal, ids: Layout) -> Checked {
    if ids.dtype != I32 {
        return Err(refusal.dtype("the ids must be I32"));
    }
    Ok(())
}

/// Mirrors `ggml_get_rows`.
fn check_get_rows(a: Layout, ids: Layout, rows: usize) -> Checked {
    let refusal = Refusal {
        op: "get_rows",
        operands: &[("a", a), ("ids", ids)],
    };
    if a.ne[2] != ids.ne[1] || a.ne[3] != ids.ne[2] || ids.ne[3] != 1 {
        return Err(refusal
            .shape("ne[2] and ne[3] of a must be ne[1] and ne[2] of the ids, whose ne[3] is 1"));
    }
    check_bound(&refusal, rows, a.ne[1])?;
    check_id_type(&refusal, ids)?;
    let takes = matches!(a.dtype, F32 | F16 | DType::BF16 | I32) || a.dtype.dequantizes();
    if !takes {
        return Err(refusal.dtype("rows are of floats, of I32 or of a type that dequantizes"));
    }
    let dtype = if a.dtype == I32 { I32 } else { F32 };
    refusal.check_result(dtype, [a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]])
}

/// Mirrors `ggml_get_rows_back`, and what its kernel takes for granted.
fn check_get_rows_back(a: Layout, ids: Layout, like: Layout, rows: usize) -> Checked {
    let refusal = Refusal {
        op: "get_rows_back",
        operands: &[("a", a), ("ids", ids), ("like", like)],
    };
    let matrix = |layout: Layout| layout.ne[2..] == [1, 1];
    if !matrix(a) || !matrix(like) || ids.ne[1..] != [1, 1, 1] {
        return Err(refusal.shape("a and like must be matrices, and the ids one list"));
    }
    if a.ne[0] != like.ne[0] {
        return Err(refusal.shape("ne[0] of a and like must be the same"));
    }
    if a.ne[1] != ids.ne[0] {
        return Err(refusal.shape("there must be an id for each row of a"));
    }
    check_bound(&refusal, rows, like.ne[1])?;
    check_id_type(&refusal, ids)?;
    if !ids.has_packed_rows() {
        return Err(refusal.layout("the ids must lie one after the other"));
    }
    if !matches!(a.dtype, F32 | F16) {
        return Err(refusal.dtype("the gradient must be F32 or F16"));
    }
    refusal.check_result(F32, like.ne)
}

/// Mirrors `ggml_set_rows`, and keeps threads from writing what others read or write.
fn check_set_rows(
    a: Layout,
    b: Layout,
    ids: Layout,
    rows: usize,
    distinct: bool,
    same_memory: bool,
) -> Checked {
    let refusal = Refusal {
        op: "set_rows",
        operands: &[("a", a), ("b", b), ("ids", ids)],
    };
    if !distinct {
        return Err(refusal.param(
            "rows that are named twice would be written at once: the ids must be distinct",
        ));
    }
    if a.ne[0] != b.ne[0] || a.ne[2..] != b.ne[2..] {
        return Err(refusal.shape("ne[0], ne[2] and ne[3] of a and b must be the same"));
    }
    if b.ne[1] != ids.ne[0] {
        return Err(refusal.shape("there must be an id, ne[0] of the ids, for each row of b"));
    }
    if !b.ne[2].is_multiple_of(ids.ne[1]) || !b.ne[3].is_multiple_of(ids.ne[2]) || ids.ne[3] != 1 {
        return Err(refusal.shape("ne[2] and ne[3] of b must be multiples of ne[1] and ne[2] of the ids, whose ne[3] is 1"));
    }
    check_bound(&refusal, rows, a.ne[1])?;
    if !matches!(b.dtype, F32 | F16) {
        return Err(refusal.dtype("the rows that are written must be F32 or F16"));
    }
    if !matches!(a.dtype, F32 | F16 | DType::BF16) && !a.dtype.dequantizes() {
        return Err(refusal.dtype("rows are written to floats and to types that dequantize"));
    }
    if !a.has_contiguous_rows() || !b.has_contiguous_rows() {
        return Err(refusal.layout("rows must be packed: call cont() first"));
    }
    if same_memory {
        return Err(refusal.layout("a and b are views of one tensor: call cont() on b first"));
    }
    if a.may_overlap_itself() {
        return Err(refusal.layout("elements of a share memory"));
    }
    Ok(())
}

/// Mirrors `ggml_add_id`.
fn check_add_id(a: Layout, b: Layout, ids: Layout, experts: usize) -> Checked {
    let refusal = Refusal {
        op: "add_id",
        operands: &[("a", a), ("b", b), ("ids", ids)],
    };
    if a.ne[0] != b.ne[0] {
        return Err(refusal.shape("ne[0] of a and b must be the same"));
    }
    if a.ne[1..3] != ids.ne[..2] || a.ne[3] != 1 {
        return Err(refusal.shape(
            "a must have a row for each id: ne[1] and ne[2] of a are ne[0] and ne[1] of the ids",
        ));
    }
    check_bound(&refusal, experts, b.ne[1])?;
    if a.dtype != F32 || b.dtype != F32 {
        return Err(refusal.dtype("a and b must be F32"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn rows_are_got_below_the_bound_alone() {
        let get = |a: Layout, ids: &[usize], rows| check_get_rows(a, layout(I32, ids), rows);
        let a = layout(F32, &[8, 5, 2, 3]);
        get(a, &[7, 2, 3], 5).unwrap();
        get(a, &[7, 2, 3], 4).unwrap();
        get(layout(DType::Q4_K, &[256, 5]), &[7], 5).unwrap();
        assert!(matches!(get(a, &[7, 2, 3], 6), Err(Refused::Shape(_))));
        assert!(matches!(get(a, &[7, 3, 2], 5), Err(Refused::Shape(_))));
        assert!(matches!(get(a, &[7, 2], 5), Err(Refused::Shape(_))));
        let wide = check_get_rows(layout(F32, &[8, 5]), layout(DType::I64, &[7]), 5);
        assert!(matches!(wide, Err(Refused::DType(_))));
        for dtype in [DType::Q8_1, DType::Q8_K, DType::I8, DType::F64] {
            let error = get(layout(dtype, &[256, 5]), &[7], 5);
            assert!(matches!(error, Err(Refused::DType(_))), "{dtype}");
        }
    }

    #[test]
    fn gradients_of_rows_have_an_id_each() {
        let like = layout(F32, &[8, 5]);
        let back =
            |a: &[usize], ids: Layout, rows| check_get_rows_back(layout(F32, a), ids, like, rows);
        back(&[8, 7], layout(I32, &[7]), 5).unwrap();
        for (a, ids, rows) in [
            (&[8, 7][..], layout(I32, &[6]), 5),
            (&[8, 7], layout(I32, &[8]), 5),
            (&[8, 7], layout(I32, &[7]), 6),
            (&[9, 7], layout(I32, &[7]), 5),
            (&[8, 7, 2], layout(I32, &[7]), 5),
        ] {
            assert!(
                matches!(back(a, ids, rows), Err(Refused::Shape(_))),
                "{a:?}"
            );
        }
        let spread = Layout {
            nb: [8, 56, 56, 56],
            ..layout(I32, &[7])
        };
        assert!(matches!(back(&[8, 7], spread, 5), Err(Refused::Layout(_))));
    }

    #[test]
    fn rows_are_written_once_and_where_nobody_reads() {
        let (a, b) = (layout(F16, &[8, 5, 4]), layout(F32, &[8, 3, 4]));
        let ids = layout(I32, &[3, 2]);
        check_set_rows(a, b, ids, 5, true, false).unwrap();
        assert!(matches!(
            check_set_rows(a, b, ids, 5, false, false),
            Err(Refused::Param(_))
        ));
        assert!(matches!(
            check_set_rows(a, b, ids, 5, true, true),
            Err(Refused::Layout(_))
        ));
        assert!(matches!(
            check_set_rows(a, b, ids, 6, true, false),
            Err(Refused::Shape(_))
        ));
        let three = layout(I32, &[3, 3]);
        assert!(matches!(
            check_set_rows(a, b, three, 5, true, false),
            Err(Refused::Shape(_))
        ));
        let integers = layout(I32, &[8, 5, 4]);
        assert!(matches!(
            check_set_rows(integers, b, ids, 5, true, false),
            Err(Refused::DType(_))
        ));
        let turned = transposed(layout(F16, &[5, 8, 4]));
        assert!(matches!(
            check_set_rows(turned, b, ids, 5, true, false),
            Err(Refused::Layout(_))
        ));
        let folded = Layout {
            nb: [2, 16, 16, 16],
            ..a
        };
        assert!(matches!(
            check_set_rows(folded, b, ids, 5, true, false),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn every_token_has_its_experts_row() {
        let (a, b) = (layout(F32, &[8, 2, 3]), layout(F32, &[8, 4]));
        check_add_id(a, b, layout(I32, &[2, 3]), 4).unwrap();
        assert!(matches!(
            check_add_id(a, b, layout(I32, &[2, 3]), 5),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_add_id(a, b, layout(I32, &[3, 2]), 4),
            Err(Refused::Shape(_))
        ));
        let halves = layout(F16, &[8, 2, 3]);
        assert!(matches!(
            check_add_id(halves, b, layout(I32, &[2, 3]), 4),
            Err(Refused::DType(_))
        ));
    }
}
