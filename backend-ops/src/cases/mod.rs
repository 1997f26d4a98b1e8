//! The cases: what to compute, on which data, and what must come out.

mod arithmetic;
pub(crate) mod arrange;
pub(crate) mod attention;
pub mod case;
pub(crate) mod conv;
mod custom;
mod glu;
mod image;
mod iq4_nl;
mod loss;
pub(crate) mod matmul;
mod normalize;
mod optimizer;
mod quick;
pub(crate) mod recurrent;
mod reduce;
pub(crate) mod rope;
mod rows;
pub(crate) mod softmax;
pub(crate) mod sort;
mod triangle;
mod types;
mod unary;
mod views;

use std::fmt;

pub use arithmetic::{Add1, AddCast, AddId, Arange, Binary, Fill, Scale};
pub use arrange::{
    Acc, Concat, Cont, Cpy, Dup, Looks, Pad, PadExt, PadReflect1d, Repeat, RepeatBack, Roll,
    SetWindow,
};
pub use glu::{Glu, GluSplit, SwigluOai};
pub use matmul::{MulMat, MulMatId, OutProd};
pub use reduce::{Cumsum, Mean, Sum, SumRows};
pub use triangle::{Diag, DiagMask, SolveTri, Tri};
pub use unary::{Clamp, LeakyRelu, Plain, ReluSqr, SiluBack, Snake, Softcap, Unary, Xielu};

use case::{Case, boxed};

/// The cases of a family of ops.
type Family = fn() -> Vec<Box<dyn Case>>;

/// What makes up the default set, in its order.
const FAMILIES: [Family; 19] = [
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
    /// Of the default set's ops every value of every parameter at least once, in few and small cases: minutes, not the whole.
    Quick,
    /// OUT_PROD with operands beyond half's range, on either side.
    Range,
    /// OUT_PROD held to the rounding of sums in F32, at the edges of all that the CPU cuts it into.
    Precise,
    /// MUL_MAT_ID in every staging against sums in f64, with bounds on each error.
    GroundTruth,
    /// What mode perf measures where no other set is asked for: upstream's list, and OUT_PROD.
    Perf,
    /// Mode perf: OUT_PROD with float against half staging, beside timings that others published.
    Staging,
    /// Mode perf: OUT_PROD of the CPU beside the sgemm of the machine's BLAS, with their ratio.
    Blas,
}

impl Set {
    /// The cases, in order.
    #[must_use]
    pub fn cases(self) -> Vec<Box<dyn Case>> {
        match self {
            Self::Gate => matmul::gate(),
            Self::Range => matmul::range(),
            Self::Precise => matmul::precise(),
            Self::GroundTruth => matmul::ground_truth(),
            Self::Perf => crate::modes::perf::cases::cases(),
            Self::Staging => boxed(crate::modes::perf::staging::cases()).collect(),
            Self::Blas => boxed(crate::modes::perf::blas::cases()).collect(),
            Self::Upstream => FAMILIES.iter().flat_map(|cases| cases()).collect(),
            Self::Quick => quick::select(Self::Upstream.cases()),
        }
    }

    /// Whether the set forbids gaps.
    #[must_use]
    pub fn requires_support(self) -> bool {
        !matches!(self, Self::Upstream | Self::Quick | Self::Perf)
    }

    /// The set that holds the same cases and more.
    #[must_use]
    pub fn whole(self) -> Self {
        match self {
            Self::Quick => Self::Upstream,
            other => other,
        }
    }

    /// Whether its cases are too large to be compared with a reference.
    #[must_use]
    pub fn is_for_perf(self) -> bool {
        matches!(self, Self::Perf | Self::Staging | Self::Blas)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upstream => "upstream",
            Self::Quick => "quick",
            Self::Gate => "gate",
            Self::Range => "range",
            Self::Precise => "precise",
            Self::GroundTruth => "ground-truth",
            Self::Perf => "perf",
            Self::Staging => "staging",
            Self::Blas => "blas",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What must not go missing, by families.
    const OPS: [&str; 40] = [
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
        "TANH",
        "GEGLU",
        "SUM_ROWS",
        "SOLVE_TRI",
        "CONV_2D",
        "UPSCALE",
        "SSM_SCAN",
        "ARGSORT",
        "CROSS_ENTROPY_LOSS",
        "OPT_STEP_ADAMW",
        "CUSTOM",
    ];

    #[test]
    fn the_default_set_holds_every_family_and_the_gate_only_out_prod() {
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
