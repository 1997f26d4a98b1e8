//! `TOP_K`. Upstream's `test_top_k`.

use ggml_rs::{DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Choices, Layout, Leaves, Measure, Ranks, smaller};
use crate::data::{Init, Operand, OperandData, permutations};
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct TopK {
    /// Type of the values.
    pub dtype: DType,
    /// Shape of the values.
    pub ne: [usize; 4],
    /// How many are chosen from a row.
    pub k: usize,
    /// Whether some elements of a row are equal.
    pub ties: bool,
    /// How the values lie in memory.
    pub layout: Layout,
    /// Whether the values are extreme.
    pub extremes: bool,
}

impl TopK {
    pub(crate) fn new(ne: [usize; 4], k: usize, ties: bool) -> Self {
        Self {
            dtype: DType::F32,
            ne,
            k,
            ties,
            layout: Layout::Plain,
            extremes: false,
        }
    }
}

impl Case for TopK {
    fn op(&self) -> &'static str {
        "TOP_K"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("k", self.k)
            .with("ties", self.ties)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let values = self.layout.stored(Operand::new("a", self.dtype, self.ne));
        vec![values.init(match self.extremes {
            true => Init::Extremes,
            false if self.ties => Init::Drawn(tied(self.k)),
            false if self.layout == Layout::Plain => Init::Permutation,
            false => Init::Drawn(super::distinct),
        })]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        self.layout.view(leaves[0])?.top_k(self.k)?.to_tensor()
    }

    /// The ids of the largest elements by the total order, in which NaN is larger than all.
    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let values = self.layout.read(operands[0].values(), self.ne);
        let largest = |row: &[f32]| {
            let mut ids: Vec<usize> = (0..row.len()).collect();
            ids.select_nth_unstable_by(self.k - 1, |&i, &j| row[j].total_cmp(&row[i]));
            ids.truncate(self.k);
            ids
        };
        let ids = values.chunks(self.ne[0]).flat_map(largest);
        Ok(Some(ids.map(|id| id as f64).collect()))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }

    /// Upstream compares the ids of all rows together as one set; here each row's are compared.
    fn measure(&self) -> Measure {
        match self.layout {
            // Ranks are of what is stored.
            Layout::Columns | Layout::Rows | Layout::Window => Measure::RowSets(self.k),
            Layout::Plain => Measure::Ranks(Ranks {
                row: self.ne[0],
                ids: self.k,
                ordered: false,
            }),
        }
    }
}

/// Upstream's ties: as many equal elements as half of `k`, but 1 to 10. A function for each, because [`Init::Drawn`] takes
/// no closure.
fn tied(k: usize) -> fn(&Operand, &mut ChaCha8Rng) -> Vec<f32> {
    fn of<const EQUAL: usize>(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let values = permutations(operand, rng);
        values
            .into_iter()
            .map(|value| (value / EQUAL as f32).floor())
            .collect()
    }
    match k / 2 {
        0 | 1 => of::<1>,
        2 => of::<2>,
        3 => of::<3>,
        4 => of::<4>,
        5 => of::<5>,
        6 => of::<6>,
        7 => of::<7>,
        8 => of::<8>,
        9 => of::<9>,
        _ => of::<10>,
    }
}

/// All.
pub(super) fn cases() -> Vec<TopK> {
    const KS: [usize; 9] = [1, 2, 3, 7, 15, 100, 500, 1023, 9999];
    const BATCHES: [[usize; 4]; 9] = [
        [16, 10, 10, 10],
        [60, 10, 10, 10],
        [1023, 2, 1, 3],
        [1024, 2, 1, 3],
        [1025, 2, 1, 3],
        [16384, 1, 1, 1],
        [2047, 2, 1, 3],
        [2048, 2, 1, 3],
        [2049, 2, 1, 3],
    ];
    let mut cases = Vec::new();
    for n in 1..5 {
        cases.extend((1..=n).map(|k| TopK::new([n, 2, 1, 3], k, true)));
    }
    for n in (0..20).map(|bits| 1 << bits) {
        for k in KS.into_iter().filter(|&k| k <= n) {
            cases.push(TopK::new([n, 1, 1, 1], k, false));
            cases.extend([false, true].map(|ties| TopK::new([n + 11, 1, 2, 1], k, ties)));
        }
    }
    for k in &KS[..5] {
        // Upstream's rows of 16 elements, of which 15 are the largest k.
        cases.extend(BATCHES.map(|ne| TopK::new(ne, *k, false)));
    }
    cases.extend(ours());
    cases
}

fn ours() -> Vec<TopK> {
    let mut cases: Vec<TopK> = [33, 1500]
        .into_iter()
        .flat_map(|n| [1, 5, n].map(|k| TopK::new([n, 3, 2, 2], k, true)))
        .collect();
    cases.extend(Layout::OTHERS.map(|layout| TopK {
        layout,
        ..TopK::new([33, 5, 3, 2], 4, false)
    }));
    cases.extend([1, 12, 40].map(|k| TopK {
        extremes: true,
        ..TopK::new([40, 3, 1, 1], k, false)
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(cases()[0].name(), "TOP_K(type=f32,ne=[1,2,1,3],k=1,ties=1)");
    }

    #[test]
    fn ties_are_ties() {
        let case = TopK::new([33, 2, 1, 1], 7, true);
        let operand = &case.operands()[0];
        let data = OperandData::generate(operand, 1, &case.name()).expect("generates");
        let threes = data.values()[..33].iter().filter(|&&value| value == 3.0);
        assert_eq!(threes.count(), 3);
    }
}
