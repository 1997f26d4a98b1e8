//! `DUP`: a contiguous copy. Upstream's `test_dup`.

use ggml_rs::{DType, Tensor};

use super::order::{Axes, UNPERMUTED};
use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::{Init, Operand, integers};
use crate::vars::Vars;

/// One DUP case.
#[derive(Clone, Debug)]
pub struct Dup {
    dtype: DType,
    ne: [usize; 4],
    permute: Axes,
    /// Ours: a copy of the tensor to where it is.
    in_place: bool,
}

impl Dup {
    fn new(dtype: DType, ne: [usize; 4], permute: Axes) -> Self {
        Self {
            dtype,
            ne,
            permute,
            in_place: false,
        }
    }
}

impl Case for Dup {
    fn op(&self) -> &'static str {
        "DUP"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with_unless_default("permute", self.permute, UNPERMUTED)
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let src = Operand::new("src", self.dtype, self.ne);
        vec![match self.dtype {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => src.init(Init::Drawn(integers)),
            _ => src.trained(),
        }]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let src = match self.permute {
            UNPERMUTED => leaves[0],
            axes => leaves[0].permute(axes)?,
        };
        match self.in_place {
            true => src.dup_inplace(),
            false => src.dup(),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
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
pub(super) fn cases() -> Vec<Dup> {
    use DType::{F16, F32, I16, I32};
    let whole = [F32, F16, I32, I16].map(|dtype| Dup::new(dtype, [10, 10, 20, 1], UNPERMUTED));
    let permuted = [
        (F32, [10, 10, 5, 1], [0, 2, 1, 3]),
        (F16, [10, 10, 5, 1], [0, 2, 1, 3]),
        (F32, [10, 10, 5, 1], [1, 0, 2, 3]),
        (F16, [10, 10, 5, 1], [1, 0, 2, 3]),
        (I16, [10, 8, 3, 1], [0, 2, 1, 3]),
        (I16, [10, 8, 3, 1], [1, 2, 0, 3]),
    ];
    let permuted = permuted.map(|(dtype, ne, axes)| Dup::new(dtype, ne, axes));
    whole.into_iter().chain(permuted).collect()
}

/// Ours: quantized rows, other integers, in place, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    use DType::{BF16, F16, F32, I8, I64, Q4_0, Q6_K};
    let others = [I8, I64, BF16].map(|dtype| Dup::new(dtype, [33, 3, 2, 1], UNPERMUTED));
    let blocks = [Q4_0, Q6_K].into_iter();
    let blocks = blocks.flat_map(|dtype| {
        [UNPERMUTED, [0, 2, 1, 3]].map(|axes| Dup::new(dtype, [256, 3, 2, 1], axes))
    });
    let in_place = Dup {
        in_place: true,
        ..Dup::new(F32, [33, 3, 2, 1], UNPERMUTED)
    };
    let floats = [F32, F16, BF16].map(|dtype| Dup::new(dtype, [33, 3, 2, 2], UNPERMUTED));
    boxed(others.into_iter().chain(blocks).chain([in_place]).collect())
        .chain(laid_out(floats.clone(), Layout::OTHERS))
        .chain(with_extremes(floats))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(cases()[3].name(), "DUP(type=i16,ne=[10,10,20,1])");
        assert_eq!(
            cases()[4].name(),
            "DUP(type=f32,ne=[10,10,5,1],permute=[0,2,1,3])"
        );
    }
}
