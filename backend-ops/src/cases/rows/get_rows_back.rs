//! `GET_ROWS_BACK`: the gradient of GET_ROWS, rows added up where ids name them. Upstream's `test_get_rows_back`.
//!
//! Upstream's viewed cases have two ids for four rows of gradients, of which ggml leaves out the last two; ggml-rs wants an id
//! for each row.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::cases::types;
use crate::data::Operand;
use crate::vars::Vars;

/// One GET_ROWS_BACK case.
#[derive(Clone, Debug)]
pub struct GetRowsBack {
    dtype: DType,
    /// Length of a row.
    n: usize,
    /// Rows of the result.
    m: usize,
    /// Rows of the gradient.
    r: usize,
    /// Batch.
    b: usize,
    /// Whether only the first half of the ids is used, a view.
    v: bool,
}

impl Case for GetRowsBack {
    fn op(&self) -> &'static str {
        "GET_ROWS_BACK"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("n", self.n)
            .with("m", self.m)
            .with("r", self.r)
            .with("b", self.b)
            .with("v", self.v)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("in_forward", self.dtype, [self.n, self.m, self.b, 1]),
            Operand::row_ids("rows", [self.r, self.b, 1, 1], self.m, false),
            Operand::new("grad", self.dtype, [self.n, self.r, self.b, 1]),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![&mut case.n, &mut case.m, &mut case.r, &mut case.b]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let ids = leaves.rows(1);
        let ids = match self.v {
            true => ids.narrow(0, 0, self.r / 2)?,
            false => ids,
        };
        leaves[2].get_rows_back(ids, leaves[0])
    }
}

fn case(dtype: DType, [n, m, r]: [usize; 3], v: bool) -> GetRowsBack {
    GetRowsBack {
        dtype,
        n,
        m,
        r,
        b: 1,
        v,
    }
}

/// Upstream's: short rows, many rows, every type.
pub(super) fn cases() -> Vec<GetRowsBack> {
    let mut cases = vec![
        case(DType::F32, [1, 8, 2], false),
        case(DType::F32, [1, 70_000, 4], false),
    ];
    for dtype in types::ALL.into_iter().chain([DType::I32]) {
        cases.extend([false, true].map(|v| case(dtype, [256, 5, 4], v)));
    }
    cases
}

/// Many rows that add up to few, ragged lengths.
pub(super) fn ours() -> Vec<GetRowsBack> {
    let shapes = [
        [1, 1, 1],
        [31, 3, 40],
        [33, 1, 65],
        [67, 50, 7],
        [256, 5, 129],
    ];
    [DType::F32, DType::F16]
        .into_iter()
        .flat_map(|dtype| shapes.map(|shape| case(dtype, shape, false)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[1].name(),
            "GET_ROWS_BACK(type=f32,n=1,m=70000,r=4,b=1,v=0)"
        );
    }
}
