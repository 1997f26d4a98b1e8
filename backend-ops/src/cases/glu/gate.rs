//! Gated linear units: a function of one half of each row times the other half, or of one tensor times another. Upstream's
//! `test_glu`, `test_glu_split` and `test_swiglu_oai`.

use ggml_rs::graph::GluOp;
use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Gradient, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller,
    with_extremes, with_infinities,
};
use crate::data::Operand;
use crate::vars::Vars;

/// Upstream's range: wide enough to meet GELU's tails.
const BOUND: f32 = 150.0;

/// The gate's function. The clamped one has a limit, which is 0 in upstream's cases: they leave it unset.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gate {
    Of(GluOp),
    Clamped(f32),
}

impl Gate {
    /// In ggml's order, but for SWIGLU_OAI.
    const ALL: [Self; 6] = [
        Self::Of(GluOp::Reglu),
        Self::Of(GluOp::Geglu),
        Self::Of(GluOp::Swiglu),
        Self::Of(GluOp::GegluErf),
        Self::Of(GluOp::GegluQuick),
        Self::Clamped(0.0),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Of(GluOp::Reglu) => "REGLU",
            Self::Of(GluOp::Geglu) => "GEGLU",
            Self::Of(GluOp::Swiglu) => "SWIGLU",
            Self::Of(GluOp::GegluErf) => "GEGLU_ERF",
            Self::Of(GluOp::GegluQuick) => "GEGLU_QUICK",
            Self::Clamped(_) => "SWIGLU_CLAMP",
            Self::Of(other) => unreachable!("{other:?} has no cases"),
        }
    }

    fn limit(self) -> f32 {
        match self {
            Self::Of(_) => 0.0,
            Self::Clamped(limit) => limit,
        }
    }
}

/// The operand, or the first columns of one three times as wide.
fn operand(name: &'static str, dtype: DType, ne: [usize; 4], v: bool) -> Operand {
    let [n0, n1, n2, n3] = ne;
    let width = if v { 3 * n0 } else { n0 };
    Operand::new(name, dtype, [width, n1, n2, n3]).within(BOUND)
}

fn looked_at<'g>(a: Tensor<'g>, ne: [usize; 4], v: bool) -> ggml_rs::Result<Tensor<'g>> {
    let [_, nb @ ..] = a.strides();
    match v {
        true => a.view(ne, nb, 0),
        false => Ok(a),
    }
}

/// Both halves lie in one tensor.
#[derive(Clone, Debug)]
pub struct Glu {
    gate: Gate,
    dtype: DType,
    ne_a: [usize; 4],
    v: bool,
    swapped: bool,
}

impl Case for Glu {
    fn op(&self) -> &'static str {
        self.gate.name()
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("v", i32::from(self.v))
            .with("swapped", self.swapped)
            .with_unless_default("limit", self.gate.limit(), 0.0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![operand("a", self.dtype, self.ne_a, self.v)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let a = looked_at(leaves[0], self.ne_a, self.v)?;
        match (self.gate, self.swapped) {
            (Gate::Of(function), false) => a.glu(function),
            (Gate::Of(function), true) => a.glu_swapped(function),
            // ggml-rs has it for two tensors: the halves are views.
            (Gate::Clamped(limit), swapped) => {
                let ([n0, n1, n2, n3], [nb0, nb @ ..]) = (self.ne_a, a.strides());
                let half = |index| a.view([n0 / 2, n1, n2, n3], nb, index * (n0 / 2) * nb0);
                let (x, y) = match swapped {
                    true => (half(1)?, half(0)?),
                    false => (half(0)?, half(1)?),
                };
                x.swiglu_clamp(y, limit)
            }
        }
    }

    fn gradient(&self) -> Gradient {
        gradient(self.gate)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        max_nmse(self.gate, self.dtype)
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// The halves are tensors of their own.
#[derive(Clone, Debug)]
pub struct GluSplit {
    gate: Gate,
    dtype: DType,
    ne_a: [usize; 4],
    v: bool,
}

impl Case for GluSplit {
    fn op(&self) -> &'static str {
        self.gate.name()
    }

    fn params(&self) -> String {
        let vars = Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("v", i32::from(self.v));
        let limit = Vars::new()
            .with_unless_default("limit", self.gate.limit(), 0.0)
            .to_string();
        match limit.is_empty() {
            true => format!("{vars},split"),
            false => format!("{vars},split,{limit}"),
        }
    }

    fn operands(&self) -> Vec<Operand> {
        ["a", "b"]
            .map(|name| operand(name, self.dtype, self.ne_a, self.v).trained())
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let a = looked_at(leaves[0], self.ne_a, self.v)?;
        let b = looked_at(leaves[1], self.ne_a, self.v)?;
        match self.gate {
            Gate::Of(function) => a.glu_split(b, function),
            Gate::Clamped(limit) => a.swiglu_clamp(b, limit),
        }
    }

    fn gradient(&self) -> Gradient {
        gradient(self.gate)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        max_nmse(self.gate, self.dtype)
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// Upstream's default, and ours.
/// Where gates bend: far out they are flat, and their products large. What the CPU looks up in a table of halves, for an operand
/// rounded to half, is right to 2^-11 and to that part of a slope of about 1.
fn gradient(gate: Gate) -> Gradient {
    let bent = Gradient::default().within(-4.0, 4.0);
    match gate {
        Gate::Of(GluOp::Geglu | GluOp::GegluQuick) => bent.tolerance(2e-3),
        _ => bent,
    }
}

fn max_nmse(gate: Gate, dtype: DType) -> f64 {
    let looked_up = matches!(gate, Gate::Of(GluOp::Geglu | GluOp::GegluQuick));
    match dtype {
        // The CPU looks the gate up in a table of halves, for an operand rounded to half, and rounds F16 again when it has
        // multiplied.
        DType::F16 if looked_up => 5e-7,
        DType::F32 if looked_up => 2e-7,
        // Ours: BF16's rounding, where the CPU rounds a value that our reference rounds to its neighbour.
        DType::BF16 => 1e-5,
        _ => 1e-7,
    }
}

/// The variant of gpt-oss.
#[derive(Clone, Debug)]
pub struct SwigluOai {
    dtype: DType,
    ne_a: [usize; 4],
    v: bool,
    alpha: f32,
    limit: f32,
}

impl Case for SwigluOai {
    fn op(&self) -> &'static str {
        "SWIGLU_OAI"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("v", i32::from(self.v))
            .with("alpha", self.alpha)
            .with("limit", self.limit)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        ["a", "b"]
            .map(|name| operand(name, self.dtype, self.ne_a, self.v).trained())
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let a = looked_at(leaves[0], self.ne_a, self.v)?;
        let b = looked_at(leaves[1], self.ne_a, self.v)?;
        a.swiglu_oai(b, self.alpha, self.limit)
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

const SHAPES: [[usize; 4]; 2] = [[128, 2, 2, 2], [5, 7, 11, 13]];

/// Upstream's cases. Its fused form halves a row of 5 and leaves the last element out; ggml-rs refuses that.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (dtype, v) in [DType::F16, DType::F32]
        .into_iter()
        .flat_map(|dtype| [(dtype, false), (dtype, true)])
    {
        for gate in Gate::ALL {
            let fused = [false, true].into_iter().flat_map(|swapped| {
                SHAPES.map(|ne_a| Glu {
                    gate,
                    dtype,
                    ne_a,
                    v,
                    swapped,
                })
            });
            let split = SHAPES.map(|ne_a| GluSplit {
                gate,
                dtype,
                ne_a,
                v,
            });
            cases.extend(boxed(fused.collect()).chain(boxed(split.to_vec())));
        }
    }
    for v in [false, true] {
        for alpha in [0.5, 1.702] {
            let oai = [2.0, 7.0].map(|limit| SwigluOai {
                dtype: DType::F32,
                ne_a: SHAPES[0],
                v,
                alpha,
                limit,
            });
            cases.extend(boxed(oai.to_vec()));
        }
    }
    cases
}

/// What bounds its operands (SWIGLU_OAI, SWIGLU_CLAMP) says nothing about NaN: the CPU keeps it, Metal's `min` and `max` lose it, to one
/// bound or the other. So their extremes have none.
///
/// Ours: ragged halves of an even row, the smallest rows, BF16, other layouts, extreme values, limits.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for gate in Gate::ALL {
        let gate = match gate {
            Gate::Clamped(_) => Gate::Clamped(7.0),
            gate => gate,
        };
        let glu = |dtype, ne_a, swapped| Glu {
            gate,
            dtype,
            ne_a,
            v: false,
            swapped,
        };
        let split = |dtype, ne_a| GluSplit {
            gate,
            dtype,
            ne_a,
            v: false,
        };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let shapes = [[2, 31, 1, 1], [66, 3, 2, 1]].into_iter();
            let fused = shapes.flat_map(|ne| [false, true].map(|swapped| glu(dtype, ne, swapped)));
            let halves = [[1, 31, 1, 1], [33, 3, 2, 1]].map(|ne| split(dtype, ne));
            cases.extend(boxed(fused.collect()).chain(boxed(halves.to_vec())));
        }
        for dtype in [DType::F32, DType::F16] {
            let (fused, halves) = (
                glu(dtype, [66, 3, 2, 1], false),
                split(dtype, [33, 3, 2, 1]),
            );
            cases.extend(laid_out([fused.clone()], Layout::OTHERS));
            cases.extend(laid_out([halves.clone()], Layout::OTHERS));
            match gate {
                Gate::Of(_) => {
                    cases.extend(with_extremes([fused]).chain(with_extremes([halves])));
                }
                Gate::Clamped(_) => {
                    cases.extend(with_infinities([fused]).chain(with_infinities([halves])));
                }
            }
        }
    }
    let oai = |dtype, ne_a| SwigluOai {
        dtype,
        ne_a,
        v: false,
        alpha: 1.702,
        limit: 7.0,
    };
    let plain = [DType::F32, DType::F16].map(|dtype| oai(dtype, [33, 3, 2, 1]));
    let ragged = vec![
        oai(DType::F32, [1, 31, 1, 1]),
        oai(DType::F32, [5, 7, 11, 13]),
    ];
    cases.extend(boxed(ragged));
    cases.extend(boxed(plain.to_vec()));
    cases.extend(laid_out(plain.clone(), Layout::OTHERS));
    cases.extend(with_infinities(plain));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(|case| case.name()).collect();
        assert_eq!(names[0], "REGLU(type=f16,ne_a=[128,2,2,2],v=0,swapped=0)");
        assert_eq!(names[5], "REGLU(type=f16,ne_a=[5,7,11,13],v=0,split)");
        assert_eq!(
            names[151],
            "SWIGLU_OAI(type=f32,ne_a=[128,2,2,2],v=1,alpha=1.702000,limit=7.000000)"
        );
        assert_eq!(names.len(), 2 * 2 * 6 * 6 + 8);
    }

    #[test]
    fn every_function_of_ggml_is_here() {
        // SWIGLU_OAI.
        assert_eq!(Gate::ALL.len() + 1, ggml_sys::GGML_GLU_OP_COUNT as usize);
    }
}
