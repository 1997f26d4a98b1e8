//! `ADD1`: one value added to every element. Upstream has no case of it.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One ADD1 case.
#[derive(Clone, Debug)]
pub struct Add1 {
    dtype: DType,
    type_b: DType,
    ne: [usize; 4],
    in_place: bool,
}

impl Case for Add1 {
    fn op(&self) -> &'static str {
        "ADD1"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("type_b", self.type_b)
            .with("ne", self.ne)
            .with("inplace", self.in_place)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::new("a", self.dtype, self.ne).trained(),
            Operand::new("b", self.type_b, [1; 4]).trained(),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.in_place {
            true => leaves[0].add1_inplace(leaves[1]),
            false => leaves[0].add1(leaves[1]),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match self.dtype {
            // BF16's rounding, where the CPU rounds a value that our reference rounds to its neighbour.
            DType::BF16 => 1e-5,
            _ => 1e-7,
        }
    }
}

/// Ours: all types that the CPU takes, in place, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    use DType::{BF16, F16, F32};
    let case = |dtype, type_b| Add1 {
        dtype,
        type_b,
        ne: [33, 3, 2, 2],
        in_place: false,
    };
    let both = [case(F32, F32), case(F16, F16)];
    let mut plain = both.to_vec();
    plain.extend([case(F16, F32), case(BF16, BF16), case(BF16, F32)]);
    plain.extend([[1, 1, 1, 1], [31, 1, 5, 1]].map(|ne| Add1 {
        ne,
        ..case(F32, F32)
    }));
    plain.push(Add1 {
        in_place: true,
        ..case(F32, F32)
    });
    boxed(plain)
        .chain(laid_out(both.clone(), Layout::OTHERS))
        .chain(with_extremes(both))
        .collect()
}
