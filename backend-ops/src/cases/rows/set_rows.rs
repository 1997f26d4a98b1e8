//! `SET_ROWS`: rows written to where ids say, rounded to the destination's type. Upstream's `test_set_rows`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves, Measure, smaller};
use crate::cases::{iq4_nl, types, views};
use crate::data::{Init, Operand, OperandData, stored_as};
use crate::vars::Vars;

/// One SET_ROWS case.
#[derive(Clone, Debug)]
pub struct SetRows {
    dtype: DType,
    type_idx: DType,
    /// The destination, before dims 2 and 3 are repeated.
    ne: [usize; 4],
    /// How often the ids are repeated over dims 2 and 3.
    nr23: [usize; 2],
    /// Rows that are written.
    r: usize,
    /// Whether only the first half of rows and ids is used, views.
    v: bool,
    /// Ours: the type of the rows.
    type_src: DType,
    /// Ours: rows of special values.
    extremes: bool,
}

impl SetRows {
    fn new(dtype: DType, ne: [usize; 4], nr23: [usize; 2], r: usize, v: bool) -> Self {
        Self {
            dtype,
            type_idx: DType::I64,
            ne,
            nr23,
            r,
            v,
            type_src: DType::F32,
            extremes: false,
        }
    }

    /// Dims 2 and 3 of the destination.
    fn matrices(&self) -> [usize; 2] {
        [self.ne[2] * self.nr23[0], self.ne[3] * self.nr23[1]]
    }

    fn written(&self) -> usize {
        if self.v { self.r / 2 } else { self.r }
    }

    /// One value that rounds to its neighbour, as upstream estimates it: 2 / 2^bits, relative to the values' power of 1/4.
    fn one_step(&self, step: f64) -> f64 {
        let [m2, m3] = self.matrices();
        step * step / (0.25 * (self.ne[0] * self.r * m2 * m3) as f64)
    }
}

impl Case for SetRows {
    fn op(&self) -> &'static str {
        "SET_ROWS"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("type_idx", self.type_idx)
            .with("ne", self.ne)
            .with("nr23", self.nr23)
            .with("r", self.r)
            .with("v", self.v)
            .with_unless_default("type_src", self.type_src, DType::F32)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [m2, m3] = self.matrices();
        let ids = [self.r, self.ne[2], self.ne[3], 1];
        let src = Operand::new("src", self.type_src, [self.ne[0], self.r, m2, m3]);
        let src = match self.extremes {
            true => src.init(Init::Extremes),
            false => src,
        };
        vec![
            Operand::new("dst", self.dtype, [self.ne[0], self.ne[1], m2, m3]),
            src,
            Operand {
                dtype: self.type_idx,
                ..Operand::row_ids("row_idxs", ids, self.ne[1], true)
            },
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne.iter_mut().chain(&mut case.nr23).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (mut src, mut ids) = (leaves[1], leaves.rows(2));
        if self.v {
            ids = ids.narrow(0, 0, self.r / 2)?;
            let [m2, m3] = self.matrices();
            src = views::first(src, [self.ne[0], self.r / 2, m2, m3])?;
        }
        leaves[0].set_rows(src, ids)
    }

    /// By hand, for the sake of quantized destinations.
    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let [dst, src, ids] = operands else {
            return Ok(None);
        };
        let [n, rows, ..] = self.ne;
        let [m2, m3] = self.matrices();
        let rounded = match self.dtype {
            DType::IQ4_NL => iq4_nl::stored(src.values())?,
            dtype => stored_as(dtype, src.values())?,
        };
        let ids = ids.ids();
        let mut out: Vec<f64> = dst.values().iter().map(|&value| value.into()).collect();
        for matrix in 0..m2 * m3 {
            let (i2, i3) = (matrix % m2, matrix / m2);
            let list = i2 % self.ne[2] + self.ne[2] * (i3 % self.ne[3]);
            for row in 0..self.written() {
                let to = (matrix * rows + ids[list * self.r + row] as usize) * n;
                let from = (matrix * self.r + row) * n;
                for (out, value) in out[to..][..n].iter_mut().zip(&rounded[from..]) {
                    *out = (*value).into();
                }
            }
        }
        Ok(Some(out))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        use DType::{IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
        match self.dtype {
            Q4_0 | Q4_1 | IQ4_NL => self.one_step(1.0 / 8.0),
            Q5_0 | Q5_1 => self.one_step(1.0 / 16.0),
            Q8_0 => self.one_step(1.0 / 64.0),
            _ => 1e-7,
        }
    }

    fn measure(&self) -> Measure {
        match self.extremes {
            true => Measure::ValuesAndNan,
            false => Measure::Values,
        }
    }
}

/// Upstream's: short rows, then every type in shapes of whole blocks, and float types in ragged ones.
pub(super) fn cases() -> Vec<SetRows> {
    let mut cases: Vec<_> = [DType::I64, DType::I32]
        .map(|type_idx| SetRows {
            type_idx,
            ..SetRows::new(DType::F32, [1, 8, 1, 3], [1, 1], 2, false)
        })
        .to_vec();
    cases.push(SetRows {
        type_idx: DType::I32,
        ..SetRows::new(DType::Q8_0, [256, 5, 1, 3], [1, 1], 1, false)
    });
    for dtype in types::ALL {
        let block = dtype.block_len();
        for b in [1, 7] {
            for v in [false, true] {
                let mut add = |ne, nr23, r| cases.push(SetRows::new(dtype, ne, nr23, r, v));
                add([256, 5, b, 3], [1, 1], 1);
                add([256, 11, 1, b], [2, 3], 7);
                add([3 * block, 3, b, 1], [2, 3], 2);
                if block == 1 {
                    add([31, 3, b, 1], [2, 3], 2);
                    add([33, 5, 1, b], [2, 3], 1);
                }
            }
        }
    }
    cases
}

/// Narrow ids for every type, rows of halves, special values, one element.
pub(super) fn ours() -> Vec<SetRows> {
    let mut cases: Vec<_> = types::ALL
        .into_iter()
        .chain([DType::TQ1_0, DType::TQ2_0, DType::Q2_0])
        .map(|dtype| SetRows {
            type_idx: DType::I32,
            ..SetRows::new(dtype, [512, 9, 2, 3], [2, 1], 9, false)
        })
        .collect();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        cases.push(SetRows::new(dtype, [1, 1, 1, 1], [1, 1], 1, false));
        cases.push(SetRows {
            type_src: DType::F16,
            ..SetRows::new(dtype, [67, 5, 2, 1], [1, 3], 4, true)
        });
        cases.push(SetRows {
            extremes: true,
            ..SetRows::new(dtype, [65, 6, 1, 2], [2, 1], 3, false)
        });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[2].name(),
            "SET_ROWS(type=q8_0,type_idx=i32,ne=[256,5,1,3],nr23=[1,1],r=1,v=0)"
        );
    }

    #[test]
    fn a_wrong_digit_of_four_bits_passes() {
        let limit = |dtype| {
            SetRows::new(dtype, [256, 5, 1, 3], [1, 1], 1, false).max_nmse(Choices::default())
        };
        assert_eq!(limit(DType::Q4_0), 1.0 / 64.0 / (0.25 * 768.0));
        assert_eq!(limit(DType::Q8_0) * 64.0, limit(DType::Q4_0));
        assert_eq!(limit(DType::Q4_K), 1e-7);
    }
}
