//! `ADD`, `SUB`, `MUL`, `DIV`: element by element, with `b` repeated to `a`'s shape. Upstream's `test_bin_bcast`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Sub,
    Mul,
    Div,
}

use Operation::{Add, Div, Mul, Sub};

impl Operation {
    const ALL: [Self; 4] = [Add, Sub, Mul, Div];

    fn apply<'g>(self, a: Tensor<'g>, b: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self {
            Add => a.add(b),
            Sub => a.sub(b),
            Mul => a.mul(b),
            Div => a.div(b),
        }
    }

    fn apply_in_place<'g>(self, a: Tensor<'g>, b: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self {
            Add => a.add_inplace(b),
            Sub => a.sub_inplace(b),
            Mul => a.mul_inplace(b),
            Div => a.div_inplace(b),
        }
    }
}

/// One case: `b` has shape `ne`, `a` is `nr` times as large in each dimension.
#[derive(Clone, Debug)]
pub struct Binary {
    operation: Operation,
    dtype: DType,
    ne: [usize; 4],
    nr: [usize; 4],
    /// How many operations follow each other, each with a `b` of its own.
    nf: usize,
    /// Whether each `b` is stored in another order of dimensions.
    perm1: bool,
    /// Whether `a` and `b` are windows of one tensor that meet.
    src_overlap: bool,
    /// Upstream's cases in place print nothing of it, but nothing else has four chains of 16.
    in_place: bool,
    /// Ours: the type of `b`.
    type_b: DType,
}

/// Where dimension i of a stored `b` goes: upstream's, of `ggml_permute`.
const PERM1: [usize; 4] = [1, 2, 0, 3];

const NAMES: [&str; 16] = [
    "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b11", "b12", "b13", "b14",
    "b15",
];

impl Binary {
    fn new(operation: Operation, dtype: DType, ne: [usize; 4], nr: [usize; 4]) -> Self {
        Self {
            operation,
            dtype,
            ne,
            nr,
            nf: 1,
            perm1: false,
            src_overlap: false,
            in_place: false,
            type_b: dtype,
        }
    }

    /// A sum.
    pub(crate) fn add(dtype: DType, ne: [usize; 4], nr: [usize; 4]) -> Self {
        Self::new(Operation::Add, dtype, ne, nr)
    }

    fn shape(&self) -> [usize; 4] {
        std::array::from_fn(|i| self.ne[i] * self.nr[i])
    }

    /// The first two thirds of `a`, and the last two, as upstream cuts them.
    fn overlapping<'g>(&self, a: Tensor<'g>) -> ggml_rs::Result<[Tensor<'g>; 2]> {
        let ([n0, n1, n2, n3], [_, nb @ ..]) = (self.ne, a.strides());
        let third = n3 / 3;
        let window = |offset| a.view([n0, n1, n2, 2 * third], nb, offset);
        Ok([window(0)?, window(third * nb[2])?])
    }

    fn b<'g>(&self, leaves: &Leaves<'g>, place: usize) -> ggml_rs::Result<Tensor<'g>> {
        match self.perm1 {
            true => leaves[place].permute(PERM1),
            false => Ok(leaves[place]),
        }
    }
}

impl Case for Binary {
    fn op(&self) -> &'static str {
        match self.operation {
            Add => "ADD",
            Sub => "SUB",
            Mul => "MUL",
            Div => "DIV",
        }
    }

    fn params(&self) -> String {
        // Upstream's four chains in place.
        let told = self.in_place && self.nf == 1;
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("nr", self.nr)
            .with("nf", self.nf)
            .with("perm1", self.perm1)
            .with("src_overlap", self.src_overlap)
            .with_unless_default("inplace", told, false)
            .with_unless_default("type_b", self.type_b, self.dtype)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        // Products and quotients stay away from zero.
        let range = match self.operation {
            Add | Sub => [-1.0, 1.0],
            Mul | Div => [0.9, 1.1],
        };
        let operand = |name, dtype, ne| Operand::new(name, dtype, ne).init(Init::Uniform(range));
        let mut operands = vec![operand("a", self.dtype, self.shape())];
        if !self.src_overlap {
            let ne = match self.perm1 {
                true => PERM1.map(|axis| self.ne[axis]),
                false => self.ne,
            };
            let names = NAMES.into_iter().take(self.nf);
            operands.extend(names.map(|name| operand(name, self.type_b, ne)));
        }
        let one_shape = self.shape() == self.ne && self.nf == 1;
        if self.operation == Add && one_shape && !self.perm1 && !self.src_overlap {
            operands = operands.into_iter().map(Operand::trained).collect();
        }
        operands
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne.iter_mut().chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        if self.src_overlap {
            let [a, b] = self.overlapping(leaves[0])?;
            return self.operation.apply(a, b);
        }
        (1..=self.nf).try_fold(leaves[0], |result, place| {
            let b = self.b(leaves, place)?;
            match self.in_place {
                true => self.operation.apply_in_place(result, b),
                false => self.operation.apply(result, b),
            }
        })
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.dtype {
            // Ours: BF16's rounding, where the CPU rounds a value that our reference rounds to its neighbour.
            DType::BF16 => 1e-5,
            // Ours: each result of a chain of halves is rounded. Upstream's chains are of F32.
            DType::F16 => 1e-7 * self.nf as f64,
            _ => 1e-7,
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            type_b: DType::F32,
            ..self.clone()
        };
        let mut relaxations = as_floats(self.dtype, floats);
        if self.perm1 {
            let in_order = Self {
                perm1: false,
                ..self.clone()
            };
            relaxations.push(Relaxation {
                without: "permuted b".to_owned(),
                case: Box::new(in_order),
            });
        }
        relaxations
    }
}

/// Each operation on these shapes.
fn each(dtype: DType, ne: [usize; 4], nr: [usize; 4]) -> impl Iterator<Item = Binary> + Clone {
    (Operation::ALL.into_iter()).map(move |operation| Binary::new(operation, dtype, ne, nr))
}

/// Upstream's cases, with `b` permuted as well.
const PERMUTED: [([usize; 4], [usize; 4]); 13] = [
    ([1, 1, 8, 1], [1, 1, 1, 1]),
    ([1, 1, 1, 1], [32, 1, 1, 1]),
    ([1, 1, 320, 320], [1, 1, 1, 1]),
    ([10, 5, 1, 1], [1, 1, 1, 1]),
    ([10, 5, 4, 1], [1, 1, 1, 1]),
    ([10, 5, 4, 3], [1, 1, 1, 1]),
    ([10, 5, 4, 3], [2, 1, 1, 1]),
    ([10, 5, 4, 3], [1, 2, 1, 1]),
    ([10, 5, 4, 3], [1, 1, 2, 1]),
    ([10, 5, 4, 3], [1, 1, 1, 2]),
    ([10, 5, 4, 3], [1, 1, 2, 2]),
    ([10, 5, 4, 3], [1, 2, 2, 2]),
    ([10, 5, 4, 3], [2, 2, 2, 2]),
];

const OVERLAPPING: [[usize; 4]; 4] = [
    [10, 5, 4, 6],
    [10, 5, 4, 5],
    [1, 1, 120, 120],
    [1, 1, 4, 320],
];

/// A grid of many blocks, stable diffusion's shapes, many short rows.
const LARGE: [([usize; 4], [usize; 4]); 15] = [
    ([1, 1, 65536, 1], [256, 1, 1, 1]),
    ([1280, 1, 1, 1], [1, 1, 1, 1]),
    ([1280, 1, 1, 1], [1, 16, 16, 1]),
    ([1280, 16, 16, 1], [1, 1, 1, 1]),
    ([1280, 1, 1, 1], [1, 256, 1, 1]),
    ([1, 1, 1280, 1], [16, 16, 1, 1]),
    ([16, 16, 1280, 1], [1, 1, 1, 1]),
    ([1, 1, 1920, 1], [16, 16, 1, 1]),
    ([1, 1, 2560, 1], [16, 16, 1, 1]),
    ([1, 1, 1280, 1], [32, 32, 1, 1]),
    ([1, 1, 1920, 1], [32, 32, 1, 1]),
    ([1, 1, 640, 1], [32, 32, 1, 1]),
    ([5120, 1, 1, 1], [1, 256, 1, 1]),
    ([640, 1, 1, 1], [1, 1, 1, 1]),
    ([64, 262144, 1, 1], [1, 1, 1, 1]),
];

/// Chains of sums that backends fuse: shape, repeats, length.
const CHAINS: [([usize; 4], [usize; 4], usize); 8] = [
    ([10, 5, 4, 3], [2, 1, 1, 1], 2),
    ([16, 5, 4, 3], [1, 2, 1, 1], 3),
    ([10, 5, 4, 3], [1, 1, 2, 1], 4),
    ([16, 5, 4, 3], [1, 1, 1, 2], 5),
    ([10, 5, 4, 3], [1, 1, 2, 2], 6),
    ([10, 5, 4, 3], [1, 2, 2, 2], 7),
    ([16, 5, 4, 3], [2, 2, 2, 2], 8),
    ([16, 5, 4, 3], [1, 1, 1, 1], 16),
];

/// Upstream's cases.
pub(super) fn cases() -> Vec<Binary> {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::F32] {
        for perm1 in [false, true] {
            let shapes = PERMUTED.into_iter();
            let plain = shapes.flat_map(|(ne, nr)| each(dtype, ne, nr));
            cases.extend(plain.map(|case| Binary { perm1, ..case }));
        }
        let overlapping = OVERLAPPING.into_iter();
        let overlapping = overlapping.flat_map(|ne| each(dtype, ne, [1; 4]));
        cases.extend(overlapping.map(|case| Binary {
            src_overlap: true,
            ..case
        }));
        cases.extend(LARGE.into_iter().flat_map(|(ne, nr)| each(dtype, ne, nr)));
    }
    cases.extend([Add, Mul, Sub, Div].map(|operation| Binary {
        nf: 16,
        in_place: true,
        ..Binary::new(operation, DType::F32, [16, 5, 4, 3], [1; 4])
    }));
    cases.extend(CHAINS.map(|(ne, nr, nf)| Binary {
        nf,
        ..Binary::new(Add, DType::F32, ne, nr)
    }));
    cases
}

/// Ours: ragged rows, BF16, a `b` of another type, in place, chains of the other operations, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    const RAGGED: [([usize; 4], [usize; 4]); 4] = [
        ([31, 3, 2, 1], [1, 1, 1, 3]),
        ([33, 1, 2, 1], [1, 3, 1, 1]),
        ([1, 3, 2, 1], [33, 1, 1, 1]),
        ([3, 1, 1, 1], [11, 2, 3, 1]),
    ];
    let mut plain = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        plain.extend(RAGGED.into_iter().flat_map(|(ne, nr)| each(dtype, ne, nr)));
    }
    for dtype in [DType::F16, DType::BF16] {
        plain.extend(each(dtype, [33, 3, 2, 1], [1; 4]).map(|case| Binary {
            type_b: DType::F32,
            ..case
        }));
    }
    for dtype in [DType::F32, DType::F16] {
        plain.extend(each(dtype, [33, 3, 1, 1], [1, 1, 2, 1]).map(|case| Binary {
            in_place: true,
            ..case
        }));
        // More than any kernel fuses, and of no other operation is anything fused.
        plain.extend([Add, Sub, Mul, Div].into_iter().flat_map(|operation| {
            [3, 9].map(|nf| Binary {
                nf,
                ..Binary::new(operation, dtype, [33, 3, 1, 1], [1, 1, 2, 1])
            })
        }));
    }
    // `b` repeats out of step with the corners in `a`.
    let corners = [DType::F32, DType::F16]
        .into_iter()
        .flat_map(|dtype| each(dtype, [33, 5, 1, 1], [1, 1, 3, 2]));
    boxed(plain)
        .chain(laid_out(corners.clone(), Layout::OTHERS))
        .chain(with_extremes(corners))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let cases = cases();
        assert_eq!(
            cases[0].name(),
            "ADD(type=f16,ne=[1,1,8,1],nr=[1,1,1,1],nf=1,perm1=0,src_overlap=0)"
        );
        let last = cases.last().expect("not empty");
        assert_eq!(
            last.name(),
            "ADD(type=f32,ne=[16,5,4,3],nr=[1,1,1,1],nf=16,perm1=0,src_overlap=0)"
        );
        assert_eq!(cases.len(), 2 * 4 * (2 * 13 + 4 + 15) + 4 + 8);
    }
}
