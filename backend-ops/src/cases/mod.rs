//! The cases: what to compute, on which data, and what must come out.

mod arithmetic;
mod arrange;
mod attention;
mod conv;
mod custom;
mod glu;
mod image;
mod iq4_nl;
mod loss;
mod matmul;
mod normalize;
mod optimizer;
mod recurrent;
mod reduce;
mod rope;
mod rows;
mod softmax;
mod sort;
mod triangle;
mod types;
mod unary;
mod views;

use std::fmt;

pub use arithmetic::Add;
pub use arrange::{Cont, Cpy};
pub use matmul::{MulMat, MulMatId, OutProd};

use crate::case::Case;

/// What makes up the default set, in its order.
const FAMILIES: [fn() -> Vec<Box<dyn Case>>; 19] = [
    unary::cases,
    glu::cases,
    arithmetic::cases,
    arrange::cases,
    rows::cases,
    reduce::cases,
    sort::cases,
    normalize::cases,
    softmax::cases,
    rope::cases,
    attention::cases,
    matmul::cases,
    conv::cases,
    image::cases,
    recurrent::cases,
    triangle::cases,
    loss::cases,
    optimizer::cases,
    custom::cases,
];

/// A list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// Upstream's cases, then ours.
    Upstream,
    /// The 37 OUT_PROD cases that must all pass: a case that the device does not support is a failure here.
    Gate,
    /// OUT_PROD with operands beyond half's range, on either side.
    Range,
    /// MUL_MAT_ID in every staging against sums in f64, with bounds on each error.
    GroundTruth,
}

impl Set {
    /// The cases, in order.
    #[must_use]
    pub fn cases(self) -> Vec<Box<dyn Case>> {
        match self {
            Self::Gate => matmul::gate(),
            Self::Range => matmul::range(),
            Self::GroundTruth => matmul::ground_truth(),
            Self::Upstream => FAMILIES.iter().flat_map(|cases| cases()).collect(),
        }
    }

    /// Whether the set forbids gaps.
    #[must_use]
    pub fn requires_support(self) -> bool {
        self != Self::Upstream
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upstream => "upstream",
            Self::Gate => "gate",
            Self::Range => "range",
            Self::GroundTruth => "ground-truth",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What must not go missing, by families.
    const OPS: [&str; 29] = [
        "ADD",
        "CONT",
        "CPY",
        "GET_ROWS",
        "GET_ROWS_BACK",
        "SET_ROWS",
        "NORM",
        "RMS_NORM",
        "RMS_NORM_BACK",
        "L2_NORM",
        "GROUP_NORM",
        "NORM_MUL_ADD",
        "RMS_NORM_MUL_ADD",
        "ADD_RMS_NORM",
        "GROUP_NORM_MUL_ADD",
        "SOFT_MAX",
        "SOFT_MAX_BACK",
        "ROPE",
        "ROPE_BACK",
        "ROPE_SET_ROWS",
        "RMS_NORM_MUL_ROPE",
        "FLASH_ATTN_EXT",
        "LIGHTNING_INDEXER",
        "MUL_MAT",
        "MUL_MAT_HADAMARD",
        "MUL_MAT_VEC_FUSION",
        "MUL_MAT_ID",
        "MUL_MAT_ID_FUSION",
        "OUT_PROD",
    ];

    #[test]
    fn the_default_set_holds_every_op_and_the_gate_only_out_prod() {
        let ops = |set: Set| {
            set.cases()
                .iter()
                .map(|case| case.op())
                .collect::<BTreeSet<_>>()
        };
        let present = ops(Set::Upstream);
        for op in OPS {
            assert!(present.contains(op), "{op}");
        }
        assert_eq!(ops(Set::Gate), BTreeSet::from(["OUT_PROD"]));
        assert!(Set::Gate.requires_support() && !Set::Upstream.requires_support());
    }

    #[test]
    fn a_relaxation_is_another_case_of_the_same_op() {
        for case in Set::Upstream.cases() {
            for relaxation in case.relaxations() {
                assert_eq!(relaxation.case.op(), case.op());
                assert_ne!(
                    relaxation.case.params(),
                    case.params(),
                    "{} leaves out nothing",
                    relaxation.without
                );
            }
        }
    }
}
