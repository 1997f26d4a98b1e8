//! `SET`: replaces a window of a tensor. Upstream's `test_set`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::{Init, Operand, integers};
use crate::vars::Vars;

/// One SET case.
#[derive(Clone, Debug)]
pub struct SetWindow {
    dtype: DType,
    ne: [usize; 4],
    /// How many dimensions of the destination are twice as large.
    dim: usize,
    inplace: bool,
    /// Ours: whether rows of the window lie as far apart as those of the destination. Upstream's lie as those of the source do,
    /// one after the other.
    spread: bool,
}

impl SetWindow {
    fn ne_dst(&self) -> [usize; 4] {
        std::array::from_fn(|i| self.ne[i] * if i < self.dim { 2 } else { 1 })
    }
}

impl Case for SetWindow {
    fn op(&self) -> &'static str {
        "SET"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_src", self.dtype)
            .with("type_dst", self.dtype)
            .with("ne", self.ne)
            .with("dim", self.dim)
            .with("inplace", self.inplace)
            .with_unless_default("spread", self.spread, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        [("src", self.ne), ("dst", self.ne_dst())]
            .map(|(name, ne)| {
                let operand = Operand::new(name, self.dtype, ne);
                match self.dtype {
                    DType::I32 | DType::I16 => operand.init(Init::Drawn(integers)),
                    _ => operand.trained(),
                }
            })
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (src, dst, ne_dst) = (leaves[0], leaves[1], self.ne_dst());
        let offset = (0..self.dim)
            .map(|i| (ne_dst[i] - self.ne[i]) / 2 * dst.strides()[i])
            .sum();
        let [_, nb @ ..] = if self.spread { dst } else { src }.strides();
        match self.inplace {
            true => dst.set_inplace(src, nb, offset),
            false => dst.set(src, nb, offset),
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

const NE: [usize; 4] = [6, 5, 4, 3];

/// Upstream's cases.
pub(super) fn cases() -> Vec<SetWindow> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32] {
        for dim in 1..4 {
            cases.extend([false, true].map(|inplace| SetWindow {
                dtype,
                ne: NE,
                dim,
                inplace,
                spread: false,
            }));
        }
    }
    cases
}

/// Ours: windows of rows that lie apart, rows longer than a threadgroup, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |dtype, ne, inplace| SetWindow {
        dtype,
        ne,
        dim: 3,
        inplace,
        spread: true,
    };
    let mut plain = Vec::new();
    for dtype in [DType::F32, DType::I32, DType::F16, DType::I16] {
        plain.extend([false, true].map(|inplace| case(dtype, [33, 3, 2, 2], inplace)));
    }
    plain.extend(
        [1, 500, 600]
            .into_iter()
            .flat_map(|n| [false, true].map(|inplace| case(DType::F32, [n, 2, 1, 1], inplace))),
    );
    let one = case(DType::F32, [33, 3, 2, 1], false);
    boxed(plain)
        .chain(laid_out([one.clone()], Layout::OTHERS))
        .chain(with_extremes([one]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[1].name(),
            "SET(type_src=f32,type_dst=f32,ne=[6,5,4,3],dim=1,inplace=1)"
        );
        assert_eq!(cases().len(), 12);
    }
}
