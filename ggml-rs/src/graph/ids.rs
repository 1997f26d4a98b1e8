//! Ids of rows: the operand by which rows, experts and states are chosen.
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
//!
//! // Two rows of a table of three.
//! let (graph, (table, choice, out)) = Graph::build(|g| {
//!     let (a, table) = g.input("table", DType::F32, [2, 3])?;
//!     let (ids, choice) = g.row_ids("choice", [2], 3)?;
//!     Ok((table, choice, g.output("out", a.get_rows(ids)?)?))
//! })?;
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&table, &[0.0, 0.1, 1.0, 1.1, 2.0, 2.1])?;
//! assert!(plan.set_i32(&choice, &[0, 3]).is_err()); // there is no row 3
//! plan.set_i32(&choice, &[2, 0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&out)?, [2.0, 2.1, 0.0, 0.1]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

use std::collections::HashSet;

use super::{Builder, ExpertIds, Input, Tensor};
use crate::dtype::DType;
use crate::error::{Call, Checked, Placed, Result, here};
use crate::layout::Layout;
use crate::layout::Refusal;
use crate::shape::{IntoShape, Shape};

/// Which rows to take or to write, each below a bound: the operand of [`Tensor::get_rows`], [`Tensor::set_rows`] and others.
///
/// Ids come from a checked input ([`Builder::row_ids`]) or from an op that makes them ([`Tensor::argsort`],
/// [`Tensor::argsort_top_k`], [`Tensor::top_k`]). They are no [`Tensor`]: kernels index with them and check nothing, so
/// nothing else may write them.
///
/// Ids are in lists of `ne[0]`. They are *distinct* where no list names a row twice.
#[derive(Debug, Clone, Copy)]
pub struct RowIds<'g> {
    pub(super) tensor: Tensor<'g>,
    pub(super) rows: usize,
    pub(super) distinct: bool,
}

impl<'g> RowIds<'g> {
    /// Every id is below this.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Whether no list names a row twice.
    pub fn is_distinct(self) -> bool {
        self.distinct
    }

    /// The shape: `ne[0]` ids in each list.
    pub fn shape(self) -> Shape {
        self.tensor.shape()
    }

    /// I32 or I64.
    pub fn dtype(self) -> DType {
        self.tensor.dtype()
    }

    /// The same ids in another shape. They stay distinct where the new lists are parts of the old ones.
    ///
    /// # Errors
    /// As [`Tensor::reshape`].
    #[track_caller]
    pub fn reshape(self, shape: impl IntoShape) -> Result<Self> {
        let tensor = self.tensor.reshape(shape)?;
        let parts = self.shape().ne()[0].is_multiple_of(tensor.shape().ne()[0]);
        Ok(Self {
            tensor,
            distinct: self.distinct && parts,
            ..self
        })
    }

    /// `len` ids from the `start`th on, in dimension `dim`: a view.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a dimension that does not exist, or ids beyond its end.
    #[track_caller]
    pub fn narrow(self, dim: usize, start: usize, len: usize) -> Result<Self> {
        let at = here();
        let layout = self.tensor.layout();
        check_narrow(layout, dim, start, len).at(at)?;
        let mut ne = layout.ne;
        ne[dim] = len;
        let [_, nb1, nb2, nb3] = layout.nb;
        let tensor = self
            .tensor
            .view(ne, [nb1, nb2, nb3], start * layout.nb[dim])?;
        Ok(Self { tensor, ..self })
    }

    /// The ids as experts of tokens, [per token, tokens], for [`Tensor::mul_mat_id`] and [`Tensor::add_id`].
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless the ids are distinct; [`Error::Shape`](crate::Error::Shape) for more than two dimensions;
    /// [`Error::DType`](crate::Error::DType) for I64.
    #[track_caller]
    pub fn experts(self) -> Result<ExpertIds<'g>> {
        let at = here();
        check_experts(self.tensor.layout(), self.distinct).at(at)?;
        Ok(ExpertIds {
            tensor: self.tensor,
            experts: self.rows,
        })
    }

    /// A copy of the ids as a tensor, to be read as an output or computed with.
    ///
    /// # Errors
    /// As [`Tensor::cont`].
    #[track_caller]
    pub fn to_tensor(self) -> Result<Tensor<'g>> {
        // A copy: what writes to it does not reach the ids.
        self.tensor.cont()
    }
}

fn check_experts(ids: Layout, distinct: bool) -> Checked {
    let refusal = Refusal {
        op: "experts",
        operands: &[("ids", ids)],
    };
    if !distinct {
        return Err(
            refusal.param("a token must not name an expert twice: the ids are not distinct")
        );
    }
    if ids.ne[2..] != [1, 1] {
        return Err(refusal.shape("ids of experts have two dimensions, [per token, tokens]"));
    }
    if ids.dtype != ID_TYPE {
        return Err(refusal.dtype("ids of experts are I32"));
    }
    Ok(())
}

fn check_narrow(ids: Layout, dim: usize, start: usize, len: usize) -> Checked {
    let refusal = Refusal {
        op: "narrow",
        operands: &[("ids", ids)],
    };
    let within = |n: &usize| len > 0 && start.checked_add(len).is_some_and(|end| end <= *n);
    if ids.ne.get(dim).is_some_and(within) {
        return Ok(());
    }
    Err(refusal.param(format!(
        "{len} ids from {start} on in dimension {dim} do not exist"
    )))
}

/// How an input of ids is checked.
///
/// ```
/// use ggml_rs::RowIdsOptions;
/// let options = RowIdsOptions::new(128).distinct().wide();
/// assert_eq!(options.rows, 128);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowIdsOptions {
    /// Ids are below this.
    pub rows: usize,
    /// No list of `ne[0]` ids names a row twice: [`Tensor::set_rows`] asks for it.
    pub distinct: bool,
    /// I64 instead of I32; only [`Tensor::set_rows`] takes it.
    pub wide: bool,
}

impl RowIdsOptions {
    /// I32 ids below `rows`, which may repeat.
    pub const fn new(rows: usize) -> Self {
        Self {
            rows,
            distinct: false,
            wide: false,
        }
    }

    /// With [`RowIdsOptions::distinct`].
    pub const fn distinct(self) -> Self {
        Self {
            distinct: true,
            ..self
        }
    }

    /// With [`RowIdsOptions::wide`].
    pub const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

impl<'g> Builder<'g> {
    /// An input of I32 ids of rows, each below `rows`; they may repeat.
    /// [`Plan::set_i32`](crate::Plan::set_i32) checks them.
    ///
    /// # Errors
    /// As [`Builder::input`].
    #[track_caller]
    pub fn row_ids(
        self,
        name: &str,
        shape: impl IntoShape,
        rows: usize,
    ) -> Result<(RowIds<'g>, Input)> {
        self.row_ids_with(name, shape, RowIdsOptions::new(rows))
    }

    /// An input of ids of rows. [`Plan::set_i32`](crate::Plan::set_i32), [`Plan::set_i64`](crate::Plan::set_i64) and
    /// [`Plan::set_bytes`](crate::Plan::set_bytes) check them.
    ///
    /// # Errors
    /// As [`Builder::input`]; [`Error::Param`](crate::Error::Param) where distinct lists would have to be longer than there are rows.
    #[track_caller]
    pub fn row_ids_with(
        self,
        name: &str,
        shape: impl IntoShape,
        options: RowIdsOptions,
    ) -> Result<(RowIds<'g>, Input)> {
        let call = Call::new("row_ids");
        let RowIdsOptions {
            rows,
            distinct,
            wide,
        } = options;
        let shape = shape.into_shape()?;
        let list = shape.ne()[0];
        if distinct && list > rows {
            let detail = format!("{list} different rows of {rows} in a list");
            return Err(call.param(detail));
        }
        let dtype = if wide { DType::I64 } else { ID_TYPE };
        let (tensor, input) = self.input(name, dtype, shape)?;
        let kind = IdKind::Row;
        self.bound_ids(
            &input,
            IdRule {
                kind,
                rows,
                distinct,
            },
        );
        let ids = RowIds {
            tensor,
            rows,
            distinct,
        };
        Ok((ids, input))
    }
}

/// The type in which most ops of ggml take ids.
pub(super) const ID_TYPE: DType = DType::I32;

/// What the values of an input of ids have to keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRule {
    pub kind: IdKind,
    /// Each is below this.
    pub rows: usize,
    /// No list names one twice.
    pub distinct: bool,
}

/// What the ids name, for the words of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    Row,
    Expert,
}

impl IdKind {
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Row => ["list", "row"],
            Self::Expert => ["token", "expert"],
        }
    }
}

impl IdRule {
    /// Checks the bytes of an input of I32 or I64, in lists of `len`.
    ///
    /// # Errors
    /// The reason, which names the first list that is wrong.
    pub fn check(self, dtype: DType, bytes: &[u8], len: usize) -> std::result::Result<(), String> {
        // The bytes may lie anywhere; ids are few.
        let ids: Vec<i64> = if dtype == DType::I64 {
            bytemuck::pod_collect_to_vec(bytes)
        } else {
            let ids: Vec<i32> = bytemuck::pod_collect_to_vec(bytes);
            ids.into_iter().map(i64::from).collect()
        };
        self.check_ids(&ids, len)
    }

    /// Checks values in double precision, in lists of `len`, which the interpreter computes with.
    ///
    /// # Errors
    /// The reason, which names the first value that is no whole number, or the first list that is wrong.
    pub fn check_values(self, values: &[f64], len: usize) -> std::result::Result<(), String> {
        // Whole numbers beyond 2^53 are as much out of range as what is no number.
        let whole = |value: f64| value.fract() == 0.0 && value.abs() < 9e15;
        if let Some(at) = values.iter().position(|&value| !whole(value)) {
            let [list, row] = self.kind.words();
            return Err(format!("{list} {} names {row} {}", at / len, values[at]));
        }
        let ids: Vec<i64> = values.iter().map(|&value| value as i64).collect();
        self.check_ids(&ids, len)
    }

    fn check_ids(self, ids: &[i64], len: usize) -> std::result::Result<(), String> {
        let [list, row] = self.kind.words();
        let mut seen = HashSet::new();
        for (n, ids) in ids.chunks(len).enumerate() {
            seen.clear();
            for &id in ids {
                if !usize::try_from(id).is_ok_and(|id| id < self.rows) {
                    return Err(format!("{list} {n} names {row} {id} of {}", self.rows));
                }
                if self.distinct && !seen.insert(id) {
                    return Err(format!("{list} {n} names {row} {id} twice"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::graph::Graph;

    const EXPERTS: IdRule = IdRule {
        kind: IdKind::Expert,
        rows: 4,
        distinct: true,
    };

    fn bytes<T: bytemuck::NoUninit>(ids: &[T]) -> &[u8] {
        bytemuck::cast_slice(ids)
    }

    #[test]
    fn ids_name_existing_experts_once_a_token() {
        let check = |ids: &[i32]| EXPERTS.check(DType::I32, bytes(ids), 2);
        check(&[0, 3, 3, 0]).unwrap();
        for (ids, why) in [
            ([0, 1, 2, 4], "token 1 names expert 4 of 4"),
            ([-1, 1, 2, 3], "token 0 names expert -1"),
            ([0, 1, 2, 2], "token 1 names expert 2 twice"),
        ] {
            let text = check(&ids).unwrap_err();
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn wide_ids_are_not_cut() {
        let rows = IdRule {
            kind: IdKind::Row,
            rows: 4,
            distinct: false,
        };
        let check = |ids: &[i64]| rows.check(DType::I64, bytes(ids), 2);
        check(&[3, 3, 0, 1]).unwrap();
        let text = check(&[0, 1, 1, 1 << 32]).unwrap_err();
        assert!(text.contains("list 1 names row 4294967296 of 4"), "{text}");
    }

    #[test]
    fn ids_stay_distinct_in_parts_of_their_lists() {
        Graph::build(|g| {
            let (ids, _) = g.row_ids_with("ids", [6, 2], RowIdsOptions::new(8).distinct())?;
            assert!(ids.is_distinct() && ids.rows() == 8);
            assert!(ids.reshape([3, 4])?.is_distinct());
            assert!(!ids.reshape([12])?.is_distinct());
            assert!(!ids.reshape([4, 3])?.is_distinct());
            let part = ids.narrow(0, 1, 5)?;
            assert!(part.is_distinct() && part.shape().ne() == [5, 2, 1, 1]);
            assert!(ids.narrow(1, 1, 1)?.experts()?.tokens() == 1);
            for (dim, start, len) in [(0, 1, 6), (4, 0, 1), (0, 0, 0), (0, usize::MAX, 2)] {
                assert!(matches!(ids.narrow(dim, start, len), Err(Error::Param(_))));
            }
            assert!(matches!(ids.reshape([12])?.experts(), Err(Error::Param(_))));
            assert!(matches!(
                ids.reshape([3, 2, 2])?.experts(),
                Err(Error::Shape(_))
            ));
            let wide = RowIdsOptions::new(8).distinct().wide();
            let (wide, _) = g.row_ids_with("wide", [2], wide)?;
            assert!(matches!(wide.experts(), Err(Error::DType(_))));
            let none = g.row_ids_with("none", [9], RowIdsOptions::new(8).distinct());
            assert!(matches!(none, Err(Error::Param(_))));
            g.output("out", ids.to_tensor()?)
        })
        .unwrap();
    }
}
