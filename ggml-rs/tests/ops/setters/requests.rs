//! The requests, and what each promises.

use ggml_rs::{DType, Precision, Result, Route, Staging, Tensor};

use super::inputs::Kind;

/// The op that carries a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    MulMat,
    Hadamard,
    MulMatId,
    OutProd,
    Flash,
    Backward,
}

impl Op {
    pub const fn name(self) -> &'static str {
        match self {
            Self::MulMat => "MUL_MAT",
            Self::Hadamard => "MUL_MAT, mul_mat_hadamard",
            Self::MulMatId => "MUL_MAT_ID",
            Self::OutProd => "OUT_PROD",
            Self::Flash => "FLASH_ATTN_EXT, by K and V",
            Self::Backward => "the backward of MUL_MAT, by frozen weights",
        }
    }
}

/// A request as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    None,
    Staging(Staging),
    Source(Precision, usize),
    Route(Route),
    /// A route and half staging, which exclude each other.
    DirectHalf,
    FloatSums,
}

impl Request {
    pub fn name(self) -> String {
        match self {
            Self::None => "none".into(),
            Self::Staging(staging) => format!("set_staging({staging:?})"),
            Self::Source(precision, source) => {
                format!("set_src_precision({precision:?}, {source})")
            }
            Self::Route(route) => format!("set_route({route:?})"),
            Self::DirectHalf => "set_route(Direct), set_staging(Half)".into(),
            Self::FloatSums => "float()".into(),
        }
    }

    /// Sets it on a node.
    pub fn set<'g>(self, node: Tensor<'g>) -> Result<Tensor<'g>> {
        match self {
            Self::None | Self::FloatSums => Ok(node),
            Self::Staging(staging) => node.set_staging(staging),
            Self::Source(precision, source) => node.set_src_precision(precision, source),
            Self::Route(route) => node.set_route(route),
            Self::DirectHalf => node.set_route(Route::Direct)?.set_staging(Staging::Half),
        }
    }

    /// What stands in the text of a refusal.
    pub fn named_as(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Staging(_) => "set_staging",
            Self::Source(..) => "set_src_precision",
            Self::Route(_) | Self::DirectHalf => "Route",
            Self::FloatSums => "float",
        }
    }
}

/// Operands, and the largest NMSE with which the request counts as kept.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub a: Kind,
    pub b: Kind,
    pub limit: f64,
}

/// Sums of F32: at most 5e-6 by cancellation (TQ2_0), squared; half loses 2e-4.
const FLOAT: f64 = 1e-9;
/// 4096 equal values, added up one by one: each step rounds alike. Half stops at 2048.
const SUMS: f64 = 6e-8;
/// Operands rounded to f16 or bf16: 1.5e-3, squared.
const HALF: f64 = 2e-5;
/// To 8-bit blocks: 4e-3, squared, with room for blocks of 256.
const BLOCKS: f64 = 1e-3;

const fn check(a: Kind, b: Kind, limit: f64) -> Check {
    Check { a, b, limit }
}

const FINE: Check = check(Kind::Fine, Kind::Fine, FLOAT);
const RANGE: Check = check(Kind::Fine, Kind::Large, FLOAT);
const WEIGHTS: Check = check(Kind::BeyondHalf, Kind::Fine, FLOAT);
/// What every product is without a request.
const DEFAULT: Check = check(Kind::Fine, Kind::Fine, BLOCKS);

/// What is computed to see whether a request is kept. On `metal` a route says which kernel; elsewhere it is no request.
pub fn checks(op: Op, request: Request, b: DType, metal: bool) -> Vec<Check> {
    use Precision::{Bf16, F16, F32, Q8};
    match (op, request) {
        (Op::Flash, _) => vec![
            check(Kind::Constant(0.0), Kind::Constant(1.0), SUMS),
            check(Kind::Constant(0.0), Kind::Constant(40000.0), SUMS),
        ],
        // Halves are what they are, and nothing is asked of the weights.
        (Op::MulMat, Request::Source(F32 | Bf16, 1)) if b == DType::F16 => vec![
            check(Kind::Fine, Kind::Outliers, HALF),
            check(Kind::Fine, Kind::Large, HALF),
        ],
        (_, Request::Staging(Staging::Float)) => vec![FINE, RANGE, WEIGHTS],
        (_, Request::Staging(Staging::FloatWeights)) => vec![
            check(Kind::Fine, Kind::Unit, FLOAT),
            check(Kind::BeyondHalf, Kind::Unit, FLOAT),
        ],
        (_, Request::Staging(Staging::FloatActivations)) => vec![
            check(Kind::Fine, Kind::Fine, HALF),
            check(Kind::Fine, Kind::Outliers, HALF),
            check(Kind::Fine, Kind::Large, HALF),
        ],
        // Products of both keep what they are without it: f32's range, in float.
        (Op::OutProd, Request::Source(F32, _)) => vec![FINE, RANGE, WEIGHTS],
        // A rescale against overflow.
        (Op::MulMatId, Request::Source(F32, 1)) => {
            vec![DEFAULT, check(Kind::Fine, Kind::Large, BLOCKS)]
        }
        (Op::MulMat, Request::Source(F32 | Bf16, _)) => vec![FINE, RANGE, WEIGHTS],
        (_, Request::Source(Bf16, _)) => vec![
            check(Kind::Fine, Kind::Outliers, HALF),
            check(Kind::Fine, Kind::Large, HALF),
        ],
        (_, Request::Source(F16, 1)) => vec![
            check(Kind::Fine, Kind::Fine, HALF),
            check(Kind::Fine, Kind::Outliers, HALF),
        ],
        (_, Request::Source(F16, _)) => vec![check(Kind::Fine, Kind::Unit, HALF)],
        (_, Request::Source(Q8, 0)) => vec![check(Kind::Fine, Kind::Unit, BLOCKS)],
        (_, Request::Route(Route::MatVec | Route::Direct)) if metal => vec![FINE, RANGE, WEIGHTS],
        // A transform of rows in F32, but for sizes that it does not have.
        _ => vec![DEFAULT],
    }
}

/// The requests of an op.
pub fn requests(op: Op) -> Vec<Request> {
    use Precision::{Bf16, F16, F32, Q4, Q8};
    let sources = |precisions: &[Precision], source: usize| {
        let all = precisions
            .iter()
            .map(|&precision| Request::Source(precision, source));
        all.collect::<Vec<_>>()
    };
    let staged = |stagings: &[Staging]| stagings.iter().map(|&s| Request::Staging(s)).collect();
    let all = [F32, Bf16, F16, Q8, Q4];
    match op {
        Op::MulMat => [
            staged(&[Staging::Float, Staging::Half]),
            sources(&all, 0),
            sources(&all, 1),
            vec![Request::Route(Route::Auto), Request::Route(Route::MatVec)],
        ]
        .concat(),
        Op::Hadamard => vec![Request::None, Request::Staging(Staging::Float)],
        Op::MulMatId => [
            staged(&[
                Staging::Float,
                Staging::FloatWeights,
                Staging::FloatActivations,
                Staging::Half,
            ]),
            sources(&all, 1),
        ]
        .concat(),
        Op::OutProd => [
            staged(&[Staging::Float, Staging::Half]),
            sources(&[F32, F16], 0),
            sources(&[F32, F16], 1),
            vec![Request::Route(Route::Direct), Request::DirectHalf],
        ]
        .concat(),
        Op::Flash => vec![Request::FloatSums],
        Op::Backward => [
            staged(&[Staging::Float, Staging::Half]),
            vec![Request::Route(Route::Direct)],
        ]
        .concat(),
    }
}
