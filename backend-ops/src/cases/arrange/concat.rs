//! `CONCAT`: one tensor behind the other. Upstream's `test_concat`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::{Init, Operand, integers};
use crate::vars::Vars;

/// One CONCAT case.
#[derive(Clone, Debug)]
pub struct Concat {
    dtype: DType,
    ne_a: [usize; 4],
    /// How long `b` is in dimension `dim`.
    ne_b_d: usize,
    dim: usize,
    /// Bit 0: `a` is the first corner of a larger tensor. Bit 1: `b` is.
    v: usize,
}

impl Concat {
    fn ne_b(&self) -> [usize; 4] {
        let mut ne = self.ne_a;
        ne[self.dim] = self.ne_b_d;
        ne
    }

    /// Names, shapes and how much larger the stored tensor is.
    fn parts(&self) -> [(&'static str, [usize; 4], [usize; 4]); 2] {
        let factor = |bit: usize, factors| if self.v & bit == 0 { [1; 4] } else { factors };
        [
            ("a", self.ne_a, factor(1, [2, 4, 3, 1])),
            ("b", self.ne_b(), factor(2, [3, 2, 4, 1])),
        ]
    }
}

impl Case for Concat {
    fn op(&self) -> &'static str {
        "CONCAT"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("ne_b_d", self.ne_b_d)
            .with("dim", self.dim)
            .with("v", self.v)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        self.parts()
            .map(|(name, ne, factors)| {
                let stored = std::array::from_fn(|i| ne[i] * factors[i]);
                let operand = Operand::new(name, self.dtype, stored);
                match self.dtype {
                    DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                        operand.init(Init::Drawn(integers))
                    }
                    _ => operand,
                }
            })
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_a.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [a, b] = [0, 1].map(|place| {
            let (_, ne, factors) = self.parts()[place];
            let [_, nb @ ..] = leaves[place].strides();
            match factors {
                [1, 1, 1, 1] => Ok(leaves[place]),
                _ => leaves[place].view(ne, nb, 0),
            }
        });
        a?.concat(b?, self.dim)
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
pub(super) fn cases() -> Vec<Concat> {
    use DType::{BF16, F16, F32, I8, I16, I32, I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    let mut cases = Vec::new();
    for v in 0..4 {
        for dim in 0..4 {
            cases.extend([F32, F16, BF16, I8, I16, I32, I64].map(|dtype| Concat {
                dtype,
                ne_a: [11, 12, 13, 14],
                ne_b_d: 7,
                dim,
                v,
            }));
        }
    }
    for dtype in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0] {
        cases.extend([0, 1, 2, 3].map(|dim| Concat {
            dtype,
            ne_a: [128, 12, 13, 14],
            ne_b_d: if dim == 0 { 256 } else { 7 },
            dim,
            v: 0,
        }));
    }
    cases
}

/// Ours: single values, ragged rows, K-quants, quantized windows, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |dtype, ne_a, ne_b_d, dim| Concat {
        dtype,
        ne_a,
        ne_b_d,
        dim,
        v: 0,
    };
    let mut plain = Vec::new();
    for dim in 0..4 {
        plain.push(case(DType::F32, [1; 4], 1, dim));
        let long = if dim == 0 { 1024 } else { 2 };
        plain.push(case(DType::F32, [1025, 2, 1, 2], long, dim));
        let blocks = if dim == 0 { 256 } else { 3 };
        plain.push(case(DType::Q6_K, [512, 2, 3, 2], blocks, dim));
        plain.push(Concat {
            v: 3,
            ..case(
                DType::Q8_0,
                [64, 2, 3, 2],
                if dim == 0 { 32 } else { 3 },
                dim,
            )
        });
    }
    let floats = [DType::F32, DType::F16, DType::BF16].into_iter();
    let floats = floats.flat_map(|dtype| [0, 1].map(|dim| case(dtype, [33, 3, 2, 2], 5, dim)));
    boxed(plain)
        .chain(laid_out(floats.clone(), Layout::OTHERS))
        .chain(with_extremes(floats))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "CONCAT(type=f32,ne_a=[11,12,13,14],ne_b_d=7,dim=0,v=0)"
        );
        assert_eq!(cases().len(), 4 * 4 * 7 + 5 * 4);
    }
}
