//! `ARGMAX`, upstream's `test_argmax`, and `COUNT_EQUAL`, `test_count_equal`.

use ggml_rs::{DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Choices, Layout, Leaves, smaller};
use crate::data::{Init, Operand, OperandData, draw, permutations};
use crate::vars::Vars;

/// One case of ARGMAX. No two elements of a row are equal: which of equal ones is found is not specified, nor is the place
/// in a row with NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Argmax {
    /// Type of the values.
    pub dtype: DType,
    /// Shape of the values.
    pub ne: [usize; 4],
    /// How the values lie in memory.
    pub layout: Layout,
    /// Whether all values are far below 0.
    pub negative: bool,
}

impl Case for Argmax {
    fn op(&self) -> &'static str {
        "ARGMAX"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("negative", self.negative, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let values = self.layout.stored(Operand::new("a", self.dtype, self.ne));
        vec![values.init(match self.layout {
            _ if self.negative => Init::Drawn(negative),
            Layout::Plain => Init::Permutation,
            _ => Init::Drawn(super::distinct),
        })]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        self.layout.view(leaves[0])?.argmax()
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }
}

/// From minus infinity up: a kernel that begins with 0, or with the smallest finite value, finds none of them.
fn negative(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let length = operand.ne[0] as f32;
    let lowered = |value: f32| match value {
        0.0 => f32::NEG_INFINITY,
        value => f32::MIN * (1.0 - 0.5 * value / length),
    };
    permutations(operand, rng)
        .into_iter()
        .map(lowered)
        .collect()
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counted {
    /// Rows of two tensors with their maxima in the same place, as upstream does.
    Maxima,
    /// Elements of two inputs.
    Elements,
}

/// One case of COUNT_EQUAL.
#[derive(Clone, Debug, PartialEq)]
pub struct CountEqual {
    /// Type of the values.
    pub dtype: DType,
    /// Shape of both operands.
    pub ne: [usize; 4],
    /// What is counted.
    pub counted: Counted,
}

impl Case for CountEqual {
    fn op(&self) -> &'static str {
        "COUNT_EQUAL"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let init = match self.counted {
            Counted::Maxima => Init::Permutation,
            Counted::Elements => Init::Drawn(few),
        };
        ["a", "b"]
            .map(|name| Operand::new(name, self.dtype, self.ne).init(init))
            .into()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (a, b) = (leaves[0], leaves[1]);
        match self.counted {
            Counted::Maxima => a.argmax()?.count_equal(b.argmax()?),
            Counted::Elements => a.count_equal(b),
        }
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let [a, b] = [0, 1].map(|i| operands[i].values());
        let largest = self.ne[0] as f32 - 1.0;
        let place = |row: &[f32]| row.iter().position(|&value| value == largest);
        let count = match self.counted {
            Counted::Elements => a.iter().zip(b).filter(|(a, b)| a == b).count(),
            Counted::Maxima => (a.chunks(self.ne[0]).zip(b.chunks(self.ne[0])))
                .filter(|(a, b)| place(a) == place(b))
                .count(),
        };
        Ok(Some(vec![count as f64]))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }
}

/// So few different numbers that some are equal; negative ones among them.
fn few(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let numbers = draw(rng, operand.ne.iter().product(), 5);
    numbers.into_iter().map(|n| n as f32 - 2.0).collect()
}

/// ARGMAX.
pub(super) fn cases() -> Vec<Argmax> {
    let case = |row, rows| Argmax {
        dtype: DType::F32,
        ne: [row, rows, 1, 1],
        layout: Layout::Plain,
        negative: false,
    };
    let upstream = [
        [32, 1],
        [32, 513],
        [100, 10],
        [1024, 10],
        [1024, 12],
        [2000, 10],
        [5438, 3],
    ];
    let mut cases: Vec<Argmax> = upstream.map(|[row, rows]| case(row, rows)).into();
    cases.extend([[1, 1], [1, 33], [2, 5], [31, 7], [33, 7]].map(|[row, rows]| case(row, rows)));
    cases.extend([Layout::Columns, Layout::Window].map(|layout| Argmax {
        layout,
        ..case(33, 5)
    }));
    cases.extend([1, 31, 1025].map(|row| Argmax {
        negative: true,
        ..case(row, 3)
    }));
    cases
}

/// COUNT_EQUAL.
pub(super) fn count_cases() -> Vec<CountEqual> {
    let case = |dtype, ne, counted| CountEqual { dtype, ne, counted };
    let maxima = [500, 5000].map(|rows| case(DType::F32, [4, rows, 1, 1], Counted::Maxima));
    let elements = [
        [1, 1, 1, 1],
        [31, 1, 1, 1],
        [33, 7, 1, 1],
        [1025, 3, 1, 1],
        [5, 4, 3, 2],
    ]
    .map(|ne| case(DType::I32, ne, Counted::Elements));
    maxima.into_iter().chain(elements).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(cases()[1].name(), "ARGMAX(type=f32,ne=[32,513,1,1])");
        assert_eq!(
            count_cases()[0].name(),
            "COUNT_EQUAL(type=f32,ne=[4,500,1,1])"
        );
    }
}
