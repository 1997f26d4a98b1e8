//! `COL2IM_1D`: columns added up to a signal. Upstream's `test_col2im_1d`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Col2im1d {
    /// Type of the columns and of the result.
    pub dtype: DType,
    /// Elements of a kernel.
    pub k: usize,
    /// Output channels.
    pub oc: usize,
    /// Columns.
    pub t_in: usize,
    /// Elements from column to column.
    pub s0: usize,
    /// Elements cut off on both sides.
    pub p0: usize,
}

impl Case for Col2im1d {
    fn op(&self) -> &'static str {
        "COL2IM_1D"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("K", self.k)
            .with("OC", self.oc)
            .with("T_in", self.t_in)
            .with("s0", self.s0)
            .with("p0", self.p0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new(
            "cols",
            self.dtype,
            [self.k * self.oc, self.t_in, 1, 1],
        )]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| vec![&mut case.oc, &mut case.t_in])
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].col2im_1d(self.s0, self.oc, self.p0)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.dtype == DType::F32 { 1e-7 } else { 5e-4 }
    }
}

/// Upstream's sizes [K, OC, T_in, s0, p0].
const SIZES: [[usize; 5]; 11] = [
    [16, 32, 197, 8, 0],
    [4, 3, 7, 2, 0],
    [1, 5, 13, 1, 0],
    [6, 4, 11, 3, 1],
    // Gaps between the columns, which are 0.
    [2, 3, 9, 3, 0],
    [5, 4, 11, 2, 0],
    [8, 4, 13, 4, 2],
    [4, 3, 1, 2, 0],
    [16, 1, 197, 8, 0],
    [1, 5, 13, 3, 0],
    // Two elements are left.
    [8, 2, 3, 2, 5],
];

/// Ours: a single element, lengths around 32.
const OURS: [[usize; 5]; 4] = [
    [1, 1, 1, 1, 0],
    [33, 1, 1, 1, 0],
    [3, 31, 33, 1, 1],
    [32, 7, 5, 31, 15],
];

/// All.
pub(super) fn cases() -> Vec<Col2im1d> {
    let of = |dtype: DType, sizes: &[[usize; 5]]| -> Vec<Col2im1d> {
        let case = |&[k, oc, t_in, s0, p0]: &[usize; 5]| Col2im1d {
            dtype,
            k,
            oc,
            t_in,
            s0,
            p0,
        };
        sizes.iter().map(case).collect()
    };
    let types = [DType::F32, DType::F16, DType::BF16];
    let upstream = types.into_iter().flat_map(|dtype| of(dtype, &SIZES));
    let ours = types.into_iter().flat_map(|dtype| of(dtype, &OURS));
    upstream.chain(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "COL2IM_1D(type=f32,K=16,OC=32,T_in=197,s0=8,p0=0)"
        );
    }
}
