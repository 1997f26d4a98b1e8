//! `SUM_ROWS`: of each row. Upstream's `test_sum_rows`.

use ggml_rs::{DType, Tensor};

use super::sum::half_unit;
use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One SUM_ROWS case.
#[derive(Clone, Debug)]
pub struct SumRows {
    dtype: DType,
    ne: [usize; 4],
    /// Whether the dimensions behind the first change places.
    permute: bool,
    /// Whether every second matrix is left out, and the first of dimension 3.
    slice: bool,
}

impl Case for SumRows {
    fn op(&self) -> &'static str {
        "SUM_ROWS"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("permute", self.permute)
            .with("slice", self.slice)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let ([n0, n1, n2, n3], [_, nb1, nb2, nb3]) = (self.ne, leaves[0].strides());
        let mut a = leaves[0];
        if self.slice {
            a = a.view([n0, n1, n2 / 2, n3 - 1], [nb1, 2 * nb2, nb3], nb3)?;
        }
        if self.permute {
            a = a.permute([0, 2, 3, 1])?;
        }
        a.sum_rows()
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        half_unit(self.dtype)
    }
}

fn sums(ne: [usize; 4], permute: bool, slice: bool) -> SumRows {
    SumRows {
        dtype: DType::F32,
        ne,
        permute,
        slice,
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<SumRows> {
    let mut cases = vec![sums([10, 5, 4, 3], false, false)];
    for n in [11, 16] {
        let looks = [(true, false), (false, true), (true, true)];
        cases.extend(looks.map(|(permute, slice)| sums([n, 5, 6, 3], permute, slice)));
    }
    cases.extend([1, 1024, 256].map(|rows| sums([33, rows, 1, 1], false, false)));
    cases
}

/// Ours: rows of one, long rows, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let shapes = [[1, 1, 1, 1], [1, 33, 1, 2], [31, 3, 2, 1], [1025, 3, 1, 1]];
    let types = [DType::F32, DType::F16, DType::BF16].map(|dtype| SumRows {
        dtype,
        ..sums([33, 5, 3, 2], false, false)
    });
    boxed(shapes.map(|ne| sums(ne, false, false)).to_vec())
        .chain(boxed(types.to_vec()))
        .chain(laid_out(types.clone(), Layout::OTHERS))
        .chain(with_extremes(types))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[3].name(),
            "SUM_ROWS(type=f32,ne=[11,5,6,3],permute=1,slice=1)"
        );
        assert_eq!(cases().len(), 10);
    }
}
