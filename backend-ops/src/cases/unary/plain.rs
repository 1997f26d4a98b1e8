//! Functions of one tensor with nothing but a type and a shape to choose: `SQR`, `SQRT`, `LOG`, `SIN`, `COS`, and once more
//! `FLOOR`, `CEIL`, `ROUND`, `TRUNC`. Upstream's `test_sqr` and its eight likes.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, with_extremes,
};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// A function, with the values that upstream gives it.
#[derive(Clone, Copy, Debug)]
struct Function {
    name: &'static str,
    apply: for<'g> fn(Tensor<'g>) -> ggml_rs::Result<Tensor<'g>>,
    in_place: for<'g> fn(Tensor<'g>) -> ggml_rs::Result<Tensor<'g>>,
    range: [f32; 2],
    /// The shape of upstream's first case.
    ne: [usize; 4],
}

macro_rules! functions {
    ($($name:literal $apply:ident $in_place:ident $range:expr, $ne:expr;)*) => {
        &[$(Function {
            name: $name,
            apply: |a| a.$apply(),
            in_place: |a| a.$in_place(),
            range: $range,
            ne: $ne,
        }),*]
    };
}

/// In the order of upstream's first cases of a type; CLAMP and LEAKY_RELU, which have parameters, stand in files of their own.
const FUNCTIONS: &[Function] = functions![
    "SQR" sqr sqr_inplace [-1.0, 1.0], [10, 5, 4, 3];
    "SQRT" sqrt sqrt_inplace [50.0, 100.0], [10, 3, 3, 2];
    "LOG" log log_inplace [0.9, 1.1], [10, 5, 4, 3];
    "SIN" sin sin_inplace [-6.5, 6.5], [10, 2, 2, 2];
    "COS" cos cos_inplace [-6.5, 6.5], [10, 2, 2, 2];
    "FLOOR" floor floor_inplace [-10.0, 10.0], [10, 2, 2, 2];
    "CEIL" ceil ceil_inplace [-10.0, 10.0], [10, 2, 2, 2];
    "ROUND" round round_inplace [-10.0, 10.0], [10, 2, 2, 2];
    "TRUNC" trunc trunc_inplace [-10.0, 10.0], [10, 2, 2, 2];
];

/// Those that are functions of UNARY too, where our cases of them are.
fn is_unary(function: &Function) -> bool {
    matches!(function.name, "FLOOR" | "CEIL" | "ROUND" | "TRUNC")
}

/// One case of one of the functions.
#[derive(Clone, Debug)]
pub struct Plain {
    function: &'static Function,
    dtype: DType,
    ne: [usize; 4],
    /// Ours: whether the result is written over the operand.
    in_place: bool,
}

impl Plain {
    fn new(function: &'static Function, dtype: DType, ne: [usize; 4]) -> Self {
        Self {
            function,
            dtype,
            ne,
            in_place: false,
        }
    }
}

impl Case for Plain {
    fn op(&self) -> &'static str {
        self.function.name
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let a = Operand::new("a", self.dtype, self.ne);
        vec![a.init(Init::Uniform(self.function.range)).trained()]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.in_place {
            true => (self.function.in_place)(leaves[0]),
            false => (self.function.apply)(leaves[0]),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.dtype {
            // Ours: BF16's rounding, where the CPU rounds a value that our reference rounds to its neighbour.
            DType::BF16 => 1e-5,
            _ => 1e-7,
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Plain> {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::F32] {
        cases.extend((FUNCTIONS.iter()).map(|function| Plain::new(function, dtype, function.ne)));
        for function in FUNCTIONS {
            cases.extend(
                [[7, 1, 5, 3], [1024, 1024, 1, 1]].map(|ne| Plain::new(function, dtype, ne)),
            );
        }
    }
    cases
}

/// Ours: as those of UNARY's functions.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for function in FUNCTIONS.iter().filter(|function| !is_unary(function)) {
        let case = |dtype, ne| Plain::new(function, dtype, ne);
        let in_place = Plain {
            in_place: true,
            ..case(DType::F32, [33, 3, 2, 1])
        };
        let mut plain = vec![case(DType::BF16, [33, 3, 2, 1]), in_place];
        for dtype in [DType::F32, DType::F16] {
            plain.extend([[1, 31, 1, 1], [31, 3, 1, 1], [33, 1, 3, 2]].map(|ne| case(dtype, ne)));
        }
        cases.extend(boxed(plain));
        let halves_and_floats = [DType::F32, DType::F16].map(|dtype| case(dtype, [33, 3, 2, 1]));
        cases.extend(laid_out(halves_and_floats.clone(), Layout::OTHERS));
        cases.extend(with_extremes(halves_and_floats));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(Case::name).collect();
        assert_eq!(names[0], "SQR(type=f16,ne=[10,5,4,3])");
        assert_eq!(names[1], "SQRT(type=f16,ne=[10,3,3,2])");
        assert_eq!(names[53], "TRUNC(type=f32,ne=[1024,1024,1,1])");
        assert_eq!(names.len(), 54);
    }
}
