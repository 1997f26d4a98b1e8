//! `ARGSORT`. Upstream's `test_argsort`.

use ggml_rs::{DType, SortOrder, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, Measure, Ranks, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case. No two elements of a row are equal, but for the extremes.
#[derive(Clone, Debug, PartialEq)]
pub struct Argsort {
    /// Type of the values.
    pub dtype: DType,
    /// Shape of the values.
    pub ne: [usize; 4],
    /// Which come first.
    pub order: SortOrder,
    /// How the values lie in memory.
    pub layout: Layout,
    /// Whether the values are extreme, some of them more than once in a row.
    pub extremes: bool,
}

impl Argsort {
    pub(crate) fn new(ne: [usize; 4], order: SortOrder) -> Self {
        Self {
            dtype: DType::F32,
            ne,
            order,
            layout: Layout::Plain,
            extremes: false,
        }
    }
}

impl Case for Argsort {
    fn op(&self) -> &'static str {
        "ARGSORT"
    }

    fn params(&self) -> String {
        // Upstream prints the number of ggml_sort_order.
        let order = match self.order {
            SortOrder::Ascending => 0,
            SortOrder::Descending => 1,
        };
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("order", order)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let values = self.layout.stored(Operand::new("a", self.dtype, self.ne));
        vec![values.init(match (self.extremes, self.layout) {
            (true, _) => Init::Extremes,
            (_, Layout::Plain) => Init::Permutation,
            _ => Init::Drawn(super::distinct),
        })]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        self.layout
            .view(leaves[0])?
            .argsort(self.order)?
            .to_tensor()
    }

    /// Upstream allows 1e-7 of what ids are.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }

    fn measure(&self) -> Measure {
        match self.extremes {
            true => Measure::Ranks(Ranks {
                row: self.ne[0],
                ids: self.ne[0],
                ordered: true,
            }),
            false => Measure::Values,
        }
    }
}

/// All. Upstream's rows of lengths around the powers of two are ascending, twice each; here they are in both orders.
pub(super) fn cases() -> Vec<Argsort> {
    const BATCHES: [[usize; 4]; 11] = [
        [16, 10, 10, 10],
        [60, 10, 10, 10],
        [1023, 2, 1, 3],
        [1024, 2, 1, 3],
        [1025, 2, 1, 3],
        [1025, 256, 1, 1],
        [2047, 2, 1, 3],
        [2048, 2, 1, 3],
        [2049, 2, 1, 3],
        [2, 8, 8192, 1],
        [2048, 512, 1, 1],
    ];
    let mut cases = Vec::new();
    for order in [SortOrder::Ascending, SortOrder::Descending] {
        for n in (2..=20).map(|bits| 1 << bits) {
            cases.extend([n - 1, n].map(|n| Argsort::new([n, 1, 1, 1], order)));
        }
        cases.extend(BATCHES.map(|ne| Argsort::new(ne, order)));
        cases.extend(ours(order));
    }
    cases
}

fn ours(order: SortOrder) -> Vec<Argsort> {
    let mut cases: Vec<Argsort> = [[1, 1, 1, 1], [1, 33, 2, 1], [2, 1, 1, 1], [33, 31, 3, 2]]
        .map(|ne| Argsort::new(ne, order))
        .into();
    cases.extend(Layout::OTHERS.map(|layout| Argsort {
        layout,
        ..Argsort::new([33, 5, 3, 2], order)
    }));
    cases.extend([40, 1500].map(|n| Argsort {
        extremes: true,
        ..Argsort::new([n, 3, 1, 1], order)
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let cases = cases();
        assert_eq!(cases[1].name(), "ARGSORT(type=f32,ne=[4,1,1,1],order=0)");
        assert_eq!(
            cases[37].name(),
            "ARGSORT(type=f32,ne=[1048576,1,1,1],order=0)"
        );
    }
}
