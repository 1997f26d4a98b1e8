//! How far rounding may take a device from the exact values: by site, the errors that one op makes.
//!
//! The interpreter runs again and again with random errors of this size, and what its results spread by is what a device's may
//! differ by: ill-conditioned values are given the room they need, and all others none.

use ggml_rs::DType::{self, BF16, F16, F32, I32, I64, IQ4_NL};
use ggml_rs::check::Site;
use ggml_rs::quantize::{dequantize, quantize};

use crate::common::Random;

/// The largest error of a value: a part of it, a part of its row's largest, a part of the largest value that the node read,
/// and a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Error {
    part: f64,
    of_row: f64,
    of_read: f64,
    plain: f64,
}

const EPS: f64 = f32::EPSILON as f64;
/// Half the distance of two neighbours.
const HALF: f64 = 1.0 / 2048.0;
const BRAIN: f64 = 1.0 / 256.0;

const NONE: Error = Error {
    part: 0.0,
    of_row: 0.0,
    of_read: 0.0,
    plain: 0.0,
};

const fn part(part: f64) -> Error {
    Error { part, ..NONE }
}

/// Which device's errors: Metal stages products in half, the CPU rounds activations to blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Cpu,
    Metal,
    /// Whichever runs the node.
    Either,
}

/// What an operand is read with. Errors that are as large as they may be also decide to which level of a block a value goes.
fn operand(site: &Site<'_>, on: On, size: Size) -> Error {
    if matches!(site.dtype, I32 | I64) {
        return NONE;
    }
    match site.op {
        "MUL_MAT" | "MUL_MAT_ID" | "OUT_PROD" => factor(site, on),
        "SUM" | "SUM_ROWS" | "MEAN" | "CUMSUM" | "NORM" | "RMS_NORM" | "GROUP_NORM" | "L2_NORM"
        | "RMS_NORM_BACK" | "SOFT_MAX" | "SOFT_MAX_BACK" | "SSM_CONV" | "GATED_DELTA_NET"
        | "CROSS_ENTROPY_LOSS" | "REPEAT_BACK" => part(4.0 * EPS),
        // Tables of halves.
        "GELU" | "GELU_QUICK" | "GEGLU" | "GEGLU_QUICK" => part(HALF),
        // What decides between values.
        "STEP" | "SGN" | "FLOOR" | "ROUND" | "ARGSORT" | "ARGMAX" => deciding(),
        "CPY" | "DUP" | "CONT" if matches!(site.result, I32) => deciding(),
        "CPY" | "DUP" | "CONT" | "SET_ROWS"
            if size == Size::Bound && site.result.is_quantized() =>
        {
            deciding()
        }
        _ => NONE,
    }
}

const fn deciding() -> Error {
    Error {
        of_row: 2.0 * EPS,
        plain: 1e-9,
        ..NONE
    }
}

/// What a factor of a product is read with: weights that are not F32 have the other one converted.
fn factor(site: &Site<'_>, on: On) -> Error {
    let weights = site.operands[0];
    let staged = match on {
        On::Metal | On::Either => HALF,
        On::Cpu => 4.0 * EPS,
    };
    match weights {
        F32 => part(staged),
        F16 => part(HALF),
        BF16 => part(BRAIN),
        _ if site.operand == Some(1) && on != On::Metal && site.op != "OUT_PROD" => Error {
            of_row: 1.0 / 240.0,
            ..NONE
        },
        _ => part(HALF),
    }
}

/// What a result is written with.
fn result(site: &Site<'_>) -> Error {
    match site.dtype {
        F16 => Error {
            part: HALF,
            plain: 1e-7,
            ..NONE
        },
        BF16 => part(BRAIN),
        F32 => single(site.op),
        // Devices look for scales that the interpreter's rounding does not find.
        IQ4_NL => Error {
            of_row: 0.15 / SAFETY,
            ..NONE
        },
        _ => NONE,
    }
}

fn single(op: &str) -> Error {
    match op {
        // Values are moved.
        "CPY" | "DUP" | "CONT" | "SET" | "GET_ROWS" | "SET_ROWS" | "CONCAT" | "REPEAT" | "PAD"
        | "PAD_REFLECT_1D" | "ROLL" | "DIAG" | "DIAG_MASK_ZERO" | "TRI" | "ABS" | "NEG" | "SGN"
        | "STEP" | "RELU" | "FLOOR" | "ROUND" | "CLAMP" | "FILL" | "ARGMAX" => NONE,
        "GELU" | "GELU_QUICK" | "GEGLU" | "GEGLU_QUICK" => Error {
            part: HALF,
            plain: 1e-7,
            ..NONE
        },
        "TANH" | "SIGMOID" | "SILU" | "ELU" | "SOFTPLUS" | "SIN" | "COS" | "SWIGLU"
        | "SWIGLU_OAI" | "HARDSWISH" => Error {
            part: 4.0 * EPS,
            plain: EPS,
            ..NONE
        },
        // Metal's erf is a polynomial.
        "GELU_ERF" | "GEGLU_ERF" => Error {
            of_read: 4.0 * EPS,
            plain: 4.0 * EPS,
            ..NONE
        },
        // Differences of what is large.
        "OPT_STEP_ADAMW" | "OPT_STEP_SGD" => Error {
            of_read: EPS,
            ..part(2.0 * EPS)
        },
        "RMS_NORM_BACK" => Error {
            of_read: 16.0 * EPS,
            ..NONE
        },
        // Sums of rows, one after the other.
        "GET_ROWS_BACK" => Error {
            of_read: 4.0 * EPS,
            ..part(2.0 * EPS)
        },
        "ROPE" | "ROPE_BACK" => Error {
            of_row: 64.0 * EPS,
            ..NONE
        },
        _ => part(2.0 * EPS),
    }
}

/// How many times what results spread by they may differ.
pub const SAFETY: f64 = 4.0;

/// How large the errors of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Those of one op. What results spread by may be [`SAFETY`] times as much.
    Op,
    /// As many times as large. Where a value is clamped, cut to an integer or rounded to blocks, results do not grow with the errors,
    /// but step: what they may step to shows at this size alone.
    Bound,
}

impl Size {
    /// How many times as large as an op's.
    pub fn times(self) -> f64 {
        match self {
            Self::Op => 1.0,
            Self::Bound => SAFETY,
        }
    }
}

/// Rounds what is written, in exact values too: blocks are far from what goes into them. `noise` puts errors in.
pub fn change(site: &Site<'_>, values: &mut [f64], noise: Option<(&mut Noise, On)>) {
    let error = match (site.operand, &noise) {
        (_, None) => NONE,
        (Some(_), Some((noise, on))) => operand(site, *on, noise.size),
        (None, Some(_)) => result(site),
    };
    if let Some((noise, _)) = noise {
        noise.put(site, values, error);
    }
    if site.operand.is_none() && site.dtype.is_quantized() && site.dtype != IQ4_NL {
        blocks(site, values);
    }
}

/// Random errors.
pub struct Noise {
    random: Random,
    size: Size,
    /// The largest value that the node has read so far.
    read: f64,
}

impl Noise {
    pub fn new(seed: u64, size: Size) -> Self {
        Self {
            random: Random::new(seed),
            size,
            read: 0.0,
        }
    }

    fn put(&mut self, site: &Site<'_>, values: &mut [f64], error: Error) {
        if error != NONE {
            for row in values.chunks_mut(site.row) {
                let most = error.plain + error.of_row * largest(row) + error.of_read * self.read;
                // Masks have infinities, which nothing rounds.
                for x in row.iter_mut().filter(|x| x.is_finite()) {
                    let unit = f64::from(self.random.unit() * 2.0 - 1.0);
                    *x += unit * self.size.times() * (most + error.part * x.abs());
                }
            }
        }
        self.read = match site.operand {
            // The numbers of an optimizer's step are factors.
            Some(index) if site.op.starts_with("OPT_STEP") && index + 1 == site.operands.len() => {
                self.read
            }
            Some(0) => largest(values),
            Some(_) => self.read.max(largest(values)),
            // A node may write more than its result.
            None => self.read,
        };
    }
}

fn largest(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|x| x.is_finite());
    finite.fold(0.0, |most, x| most.max(x.abs()))
}

/// Rows of a cache that were not written are not rounded again: only types for which that changes nothing are drawn.
fn blocks(site: &Site<'_>, values: &mut [f64]) {
    let single: Vec<f32> = values.iter().map(|&x| x as f32).collect();
    let rounded =
        quantize(site.dtype, &single, site.row).and_then(|bytes| dequantize(site.dtype, &bytes));
    for (x, rounded) in values.iter_mut().zip(rounded.into_iter().flatten()) {
        *x = rounded.into();
    }
}

/// Whether a value is one that a device has: no infinity, no NaN, and nothing near the end of its type.
pub fn in_range(dtype: DType, value: f64) -> bool {
    let most = match dtype {
        F16 => 3e4,
        I32 => 1e9,
        _ if dtype.is_quantized() => 1e4,
        _ => 1e12,
    };
    value.abs() < most
}
