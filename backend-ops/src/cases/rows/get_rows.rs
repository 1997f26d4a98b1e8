//! `GET_ROWS`: the rows of a table that ids name, as floats. Upstream's `test_get_rows`.

use ggml_rs::{DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Leaves, Measure, smaller};
use crate::cases::types;
use crate::data::{Init, Operand, draw};
use crate::vars::Vars;

/// One GET_ROWS case.
#[derive(Clone, Debug)]
pub struct GetRows {
    dtype: DType,
    /// Length of a row.
    n: usize,
    /// Rows of the table.
    m: usize,
    /// Ids.
    r: usize,
    /// Tables: dims 2 and 3.
    be1: usize,
    be2: usize,
    /// Whether only the first half of each list of ids is used, a view.
    v: bool,
    /// Ours: what is special about the table.
    table: Table,
}

/// How a table lies, and what is in it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Table {
    Plain,
    /// Rows with gaps behind them.
    Padded,
    /// Dims 1 and 2 exchanged in memory.
    Permuted,
    /// Values that arithmetic treats specially: a copy must keep them.
    Extremes,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Padded => "padded",
            Self::Permuted => "permuted",
            Self::Extremes => "extremes",
        }
    }
}

impl GetRows {
    fn new(dtype: DType, [n, m, r]: [usize; 3], [be1, be2]: [usize; 2], v: bool) -> Self {
        Self {
            dtype,
            n,
            m,
            r,
            be1,
            be2,
            v,
            table: Table::Plain,
        }
    }

    fn stored(&self) -> [usize; 4] {
        match self.table {
            Table::Padded => [self.n * 2, self.m, self.be1, self.be2],
            Table::Permuted => [self.n, self.be1, self.m, self.be2],
            _ => [self.n, self.m, self.be1, self.be2],
        }
    }
}

impl Case for GetRows {
    fn op(&self) -> &'static str {
        "GET_ROWS"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("n", self.n)
            .with("m", self.m)
            .with("r", self.r)
            .with("be1", self.be1)
            .with("be2", self.be2)
            .with("v", self.v)
            .with_unless_default("table", self.table.name(), Table::Plain.name())
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let table = Operand::new("in", self.dtype, self.stored());
        let table = match (self.dtype, self.table) {
            (DType::I32, _) => table.init(Init::Drawn(integers)),
            (_, Table::Extremes) => table.init(Init::Extremes),
            _ => table,
        };
        // Upstream's condition: only the gradient of one table exists.
        let table = match [self.be1, self.be2] {
            [1, 1] if self.table != Table::Extremes => table.trained(),
            _ => table,
        };
        let ids = [self.r, self.be1, self.be2, 1];
        vec![table, Operand::row_ids("rows", ids, self.m, false)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![
                &mut case.n,
                &mut case.m,
                &mut case.r,
                &mut case.be1,
                &mut case.be2,
            ]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let ids = leaves.rows(1);
        let ids = match self.v {
            true => ids.narrow(0, 0, self.r / 2)?,
            false => ids,
        };
        table_of(self.table, leaves[0])?.get_rows(ids)
    }

    fn measure(&self) -> Measure {
        match self.table {
            Table::Extremes => Measure::ValuesAndNan,
            _ => Measure::Values,
        }
    }
}

fn table_of<'g>(table: Table, stored: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
    match table {
        Table::Padded => {
            let [n, m, be1, be2] = stored.shape().ne();
            crate::cases::views::first(stored, [n / 2, m, be1, be2])
        }
        Table::Permuted => stored.permute([0, 2, 1, 3]),
        _ => Ok(stored),
    }
}

/// Integers that a float holds exactly.
fn integers(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    const BOUND: usize = 1 << 24;
    let centre = (BOUND / 2) as f32;
    draw(rng, operand.ne.iter().product(), BOUND)
        .into_iter()
        .map(|value| value as f32 - centre)
        .collect()
}

/// Upstream's: a long row, a table of many rows, many tables; then every type, whole and viewed.
pub(super) fn cases() -> Vec<GetRows> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::Q4_0] {
        cases.push(GetRows::new(dtype, [300 * 256, 5, 4], [1, 2], false));
        cases.push(GetRows::new(dtype, [256, 80_000, 70_000], [2, 1], false));
        cases.push(GetRows::new(dtype, [256, 5, 4], [700, 100], false));
    }
    cases.push(GetRows::new(DType::F32, [1, 8, 2], [1, 1], false));
    for dtype in types::ALL.into_iter().chain([DType::I32]) {
        for be1 in [1, 7] {
            cases.extend([false, true].map(|v| GetRows::new(dtype, [256, 5, 4], [be1, 1], v)));
        }
    }
    cases
}

/// Rows that fill no vector and no simdgroup, one row and one id, tables with gaps and permuted ones, special values.
pub(super) fn ours() -> Vec<GetRows> {
    const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for n in [1, 3, 31, 32, 33, 67] {
            cases.push(GetRows::new(dtype, [n, 7, 5], [3, 2], false));
        }
        cases.push(GetRows::new(dtype, [1, 1, 1], [1, 1], false));
        cases.push(GetRows::new(dtype, [37, 9, 6], [3, 2], true));
        for table in [Table::Padded, Table::Permuted, Table::Extremes] {
            cases.push(GetRows {
                table,
                ..GetRows::new(dtype, [33, 9, 5], [3, 2], false)
            });
        }
    }
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::IQ4_NL] {
        for table in [Table::Padded, Table::Permuted] {
            cases.push(GetRows {
                table,
                ..GetRows::new(dtype, [256, 9, 5], [3, 2], false)
            });
        }
    }
    // The types that upstream's lists leave out.
    for dtype in [DType::TQ1_0, DType::TQ2_0, DType::Q2_0] {
        cases.push(GetRows::new(dtype, [512, 5, 4], [7, 1], false));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "GET_ROWS(type=f32,n=76800,m=5,r=4,be1=1,be2=2,v=0)"
        );
    }
}
