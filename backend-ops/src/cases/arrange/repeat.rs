//! `REPEAT`: copies side by side. Upstream's `test_repeat`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::{Init, Operand, integers};
use crate::vars::Vars;

/// One REPEAT case.
#[derive(Clone, Debug)]
pub struct Repeat {
    dtype: DType,
    ne: [usize; 4],
    nr: [usize; 4],
}

impl Case for Repeat {
    fn op(&self) -> &'static str {
        "REPEAT"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("nr", self.nr)
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
        smaller(self, |case| {
            case.ne.iter_mut().chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].repeat(std::array::from_fn::<_, 4, _>(|i| self.ne[i] * self.nr[i]))
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
pub(super) fn cases() -> Vec<Repeat> {
    use DType::{BF16, F32, I16, I32};
    const REPEATS: [(DType, [usize; 4]); 8] = [
        (F32, [1, 1, 1, 1]),
        (F32, [2, 1, 1, 1]),
        (F32, [1, 2, 1, 1]),
        (F32, [1, 1, 2, 1]),
        (F32, [1, 1, 1, 2]),
        (I32, [2, 1, 1, 1]),
        (I16, [1, 1, 1, 2]),
        (BF16, [2, 1, 1, 1]),
    ];
    let cases = [1, 3].into_iter().flat_map(|ne3| {
        REPEATS.map(|(dtype, nr)| Repeat {
            dtype,
            ne: [10, 5, 4, ne3],
            nr,
        })
    });
    cases.collect()
}

/// Ours: single values, ragged rows, all dimensions at once, other types, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    use DType::{BF16, F16, F32, I8, I64, Q8_0};
    let case = |dtype, ne, nr| Repeat { dtype, ne, nr };
    let floats = [F32, F16, BF16].map(|dtype| case(dtype, [33, 3, 2, 1], [2, 3, 2, 2]));
    let plain = vec![
        case(F32, [1, 1, 1, 1], [1025, 1, 1, 1]),
        case(F32, [31, 1, 1, 1], [33, 2, 1, 1]),
        case(F32, [1, 3, 1, 2], [33, 1, 2, 1]),
        case(I8, [33, 3, 1, 1], [2, 2, 1, 1]),
        case(I64, [33, 3, 1, 1], [2, 2, 1, 1]),
        case(Q8_0, [64, 3, 1, 1], [2, 2, 1, 1]),
    ];
    boxed(plain)
        .chain(boxed(floats.to_vec()))
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
            cases()[6].name(),
            "REPEAT(type=i16,ne=[10,5,4,1],nr=[1,1,1,2])"
        );
        assert_eq!(cases().len(), 16);
    }
}
