//! `CUMSUM`: each element with those before it in its row. Upstream's `test_cumsum`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One CUMSUM case.
#[derive(Clone, Debug)]
pub struct Cumsum {
    ne: [usize; 4],
}

impl Case for Cumsum {
    fn op(&self) -> &'static str {
        "CUMSUM"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", DType::F32, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].cumsum()
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Cumsum> {
    const LARGE: [[usize; 4]; 3] = [
        [201 * 1204, 1, 1, 1],
        [312 * 1205, 1, 1, 1],
        [20481, 4, 1, 1],
    ];
    let mut shapes = [10, 127, 128].map(|n| [n, 5, 4, 3]).to_vec();
    shapes.push([128, 128, 4, 4]);
    shapes.extend([255, 256, 511, 512, 1023, 1024, 2047, 2048].map(|n| [n, 5, 4, 3]));
    shapes.extend(LARGE);
    shapes.into_iter().map(|ne| Cumsum { ne }).collect()
}

/// Ours: rows of one, rows around a SIMD group's width and a threadgroup's, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let lengths = [1, 31, 32, 33, 1025, 2049];
    let one = Cumsum { ne: [33, 3, 2, 2] };
    boxed(lengths.map(|n| Cumsum { ne: [n, 2, 1, 2] }).to_vec())
        .chain(laid_out([one.clone()], Layout::OTHERS))
        .chain(with_extremes([one]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(cases()[12].name(), "CUMSUM(type=f32,ne=[242004,1,1,1])");
        assert_eq!(cases().len(), 15);
    }
}
