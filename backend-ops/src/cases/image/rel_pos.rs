//! `GET_REL_POS` and `ADD_REL_POS`: relative positions, of all pairs and added to scores. Upstream has no cases.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, Measure};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case of GET_REL_POS.
#[derive(Clone, Debug, PartialEq)]
pub struct GetRelPos {
    /// Elements of a position.
    pub c: usize,
    /// Positions.
    pub n: usize,
    /// How the operand lies in memory.
    pub layout: Layout,
}

impl Case for GetRelPos {
    fn op(&self) -> &'static str {
        "GET_REL_POS"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("c", self.c)
            .with("n", self.n)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    /// Any values are copied.
    fn operands(&self) -> Vec<Operand> {
        let a = Operand::new("a", DType::F16, [self.c, 2 * self.n - 1, 1, 1]);
        vec![self.layout.stored(a).init(Init::Extremes)]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        self.layout.view(leaves[0])?.get_rel_pos()
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }

    fn measure(&self) -> Measure {
        Measure::ValuesAndNan
    }
}

/// One case of ADD_REL_POS.
#[derive(Clone, Debug, PartialEq)]
pub struct AddRelPos {
    /// Positions in each of two directions.
    pub n: usize,
    /// Queries in each of two directions.
    pub q: [usize; 2],
    /// Heads.
    pub b: usize,
    /// Whether the scores are overwritten.
    pub inplace: bool,
}

impl Case for AddRelPos {
    fn op(&self) -> &'static str {
        "ADD_REL_POS"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("n", self.n)
            .with("q", self.q)
            .with("b", self.b)
            .with("inplace", self.inplace)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let ([q0, q1], n) = (self.q, self.n);
        let positions = [n, q0, q1, self.b];
        vec![
            Operand::new("a", DType::F32, [n * n, q0 * q1, self.b, 1]),
            Operand::new("w", DType::F32, positions),
            Operand::new("h", DType::F32, positions),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.inplace {
            true => leaves[0].add_rel_pos_inplace(leaves[1], leaves[2]),
            false => leaves[0].add_rel_pos(leaves[1], leaves[2]),
        }
    }
}

/// All are ours.
pub(super) fn get_cases() -> Vec<GetRelPos> {
    let case = |[c, n]: [usize; 2], layout| GetRelPos { c, n, layout };
    let sizes = [[1, 1], [3, 2], [33, 7], [64, 14]];
    let mut cases: Vec<GetRelPos> = sizes.map(|sizes| case(sizes, Layout::Plain)).into();
    cases.extend([Layout::Columns, Layout::Window].map(|layout| case([5, 4], layout)));
    cases
}

/// All are ours.
pub(super) fn add_cases() -> Vec<AddRelPos> {
    let mut cases = Vec::new();
    for inplace in [false, true] {
        for (n, q, b) in [
            (1, [1, 1], 1),
            (3, [2, 5], 3),
            (14, [14, 14], 4),
            (33, [1, 3], 1),
        ] {
            cases.push(AddRelPos { n, q, b, inplace });
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_name_the_sizes() {
        assert_eq!(get_cases()[1].name(), "GET_REL_POS(c=3,n=2)");
        assert_eq!(
            add_cases()[1].name(),
            "ADD_REL_POS(n=3,q=[2,5],b=3,inplace=0)"
        );
    }
}
