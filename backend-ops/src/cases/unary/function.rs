//! The functions of ggml's `UNARY`, each under its own name. Upstream's `test_unary`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Gradient, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller,
    with_extremes, with_infinities,
};
use crate::data::Operand;
use crate::vars::Vars;

/// A function, with its method and its method in place.
#[derive(Clone, Copy, Debug)]
struct Function {
    name: &'static str,
    apply: for<'g> fn(Tensor<'g>) -> ggml_rs::Result<Tensor<'g>>,
    /// `None` where ggml has none.
    in_place: Option<for<'g> fn(Tensor<'g>) -> ggml_rs::Result<Tensor<'g>>>,
    /// Whether upstream checks its gradient.
    trained: bool,
}

macro_rules! functions {
    ($($name:literal $apply:ident $in_place:expr, $trained:literal;)*) => {
        &[$(Function {
            name: $name,
            apply: |a| a.$apply(),
            in_place: $in_place,
            trained: $trained,
        }),*]
    };
}

/// In ggml's order, but for XIELU, which has parameters.
const FUNCTIONS: &[Function] = functions![
    "ABS" abs Some(|a| a.abs_inplace()), true;
    "SGN" sgn Some(|a| a.sgn_inplace()), true;
    "NEG" neg Some(|a| a.neg_inplace()), true;
    "STEP" step Some(|a| a.step_inplace()), true;
    "TANH" tanh Some(|a| a.tanh_inplace()), false;
    "ELU" elu Some(|a| a.elu_inplace()), false;
    "RELU" relu Some(|a| a.relu_inplace()), true;
    "SIGMOID" sigmoid Some(|a| a.sigmoid_inplace()), false;
    "GELU" gelu Some(|a| a.gelu_inplace()), false;
    "GELU_QUICK" gelu_quick Some(|a| a.gelu_quick_inplace()), false;
    "SILU" silu Some(|a| a.silu_inplace()), true;
    "HARDSWISH" hardswish None, false;
    "HARDSIGMOID" hardsigmoid None, false;
    "EXP" exp Some(|a| a.exp_inplace()), false;
    "EXPM1" expm1 Some(|a| a.expm1_inplace()), true;
    "SOFTPLUS" softplus Some(|a| a.softplus_inplace()), true;
    "GELU_ERF" gelu_erf Some(|a| a.gelu_erf_inplace()), false;
    "FLOOR" floor Some(|a| a.floor_inplace()), false;
    "CEIL" ceil Some(|a| a.ceil_inplace()), false;
    "ROUND" round Some(|a| a.round_inplace()), false;
    "TRUNC" trunc Some(|a| a.trunc_inplace()), false;
];

/// One case of one of the functions.
#[derive(Clone, Debug)]
pub struct Unary {
    function: &'static Function,
    dtype: DType,
    ne_a: [usize; 4],
    /// Whether the operand is the first corner of a larger tensor.
    v: bool,
    /// Ours: whether the result is written over the operand.
    in_place: bool,
}

impl Unary {
    fn new(function: &'static Function, dtype: DType, ne_a: [usize; 4]) -> Self {
        Self {
            function,
            dtype,
            ne_a,
            v: false,
            in_place: false,
        }
    }
}

impl Case for Unary {
    fn op(&self) -> &'static str {
        self.function.name
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("v", i32::from(self.v))
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [n0, n1, n2, n3] = self.ne_a;
        let ne = match self.v {
            true => [3 * n0, 2 * n1, 5 * n2, 4 * n3],
            false => self.ne_a,
        };
        // Wide enough for GELU's tails; upstream keeps the exponentials of halves finite.
        let grows = matches!(self.op(), "EXP" | "EXPM1");
        let bound = match self.dtype {
            DType::F16 if grows => 10.0,
            _ => 150.0,
        };
        let a = Operand::new("a", self.dtype, ne).within(bound);
        vec![match self.function.trained {
            true => a.trained(),
            false => a,
        }]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [_, nb @ ..] = leaves[0].strides();
        let a = match self.v {
            true => leaves[0].view(self.ne_a, nb, 0)?,
            false => leaves[0],
        };
        match self.function.in_place {
            Some(apply) if self.in_place => apply(a),
            _ => (self.function.apply)(a),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.dtype {
            // Ours: BF16's rounding, where the CPU rounds a value that our reference rounds to its neighbour.
            DType::BF16 => 1e-5,
            // Ours: the CPU looks F32 up in a table of halves.
            DType::F32 if matches!(self.op(), "GELU" | "GELU_QUICK") => 2e-7,
            _ => 1e-7,
        }
    }

    /// Where functions bend: far out they are flat, or beyond f32.
    fn gradient(&self) -> Gradient {
        Gradient::default().within(-4.0, 4.0)
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

/// Upstream's cases.
pub(super) fn cases() -> Vec<Unary> {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::F32] {
        for v in [false, true] {
            for function in FUNCTIONS {
                cases.extend(SHAPES.map(|ne_a| Unary {
                    v,
                    ..Unary::new(function, dtype, ne_a)
                }));
            }
        }
    }
    cases
}

/// Ours: rows of one value, rows around the width of a SIMD group, BF16, in place, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for function in FUNCTIONS {
        let case = |dtype, ne_a| Unary::new(function, dtype, ne_a);
        let mut plain = vec![case(DType::BF16, [33, 3, 2, 1])];
        for dtype in [DType::F32, DType::F16] {
            plain.extend([[1, 31, 1, 1], [31, 3, 1, 1], [33, 1, 3, 2]].map(|ne| case(dtype, ne)));
        }
        if function.in_place.is_some() {
            plain.push(Unary {
                in_place: true,
                ..case(DType::F32, [33, 3, 2, 1])
            });
        }
        cases.extend(boxed(plain));
        let halves_and_floats = [DType::F32, DType::F16].map(|dtype| case(dtype, [33, 3, 2, 1]));
        let packed = [Layout::Rows, Layout::Window];
        cases.extend(laid_out(halves_and_floats.clone(), packed));
        // NaN becomes a bound, 0 on the CPU and 1 on Metal.
        match function.name {
            "HARDSIGMOID" => cases.extend(with_infinities(halves_and_floats)),
            _ => cases.extend(with_extremes(halves_and_floats)),
        }
    }
    cases.extend(laid_out(
        [Unary::new(&FUNCTIONS[0], DType::F32, [33, 3, 2, 1])],
        [Layout::Columns],
    ));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(Case::name).collect();
        assert_eq!(names[0], "ABS(type=f16,ne_a=[128,2,2,2],v=0)");
        assert_eq!(names[167], "TRUNC(type=f32,ne_a=[5,7,11,13],v=1)");
        assert_eq!(names.len(), 2 * 2 * 21 * 2);
    }

    #[test]
    fn every_function_of_ggml_is_here_or_has_a_file() {
        // XIELU.
        assert_eq!(FUNCTIONS.len() + 1, ggml_sys::GGML_UNARY_OP_COUNT as usize);
    }
}
