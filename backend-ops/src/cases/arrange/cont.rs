//! `CONT`: makes a view contiguous. Upstream's `test_cont`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::{Init, Operand, integers};
use crate::vars::Vars;

/// One CONT case.
#[derive(Clone, Debug, PartialEq)]
pub struct Cont {
    /// Type of the source and the result.
    pub dtype: DType,
    /// Shape of the source as stored.
    pub ne: [usize; 4],
    /// Whether the view is the last row of each matrix; it is the transposed tensor otherwise.
    pub use_view_slice: bool,
}

impl Case for Cont {
    fn op(&self) -> &'static str {
        "CONT"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("use_view_slice", self.use_view_slice)
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
        if !self.use_view_slice {
            return leaves[0].transpose()?.cont();
        }
        let ([n0, n1, n2, n3], [_, nb @ ..]) = (self.ne, leaves[0].strides());
        leaves[0]
            .view([n0, 1, n2, n3], nb, nb[0] * (n1 - 1))?
            .cont()
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

const SHAPES: [[usize; 4]; 6] = [
    [2, 1, 1, 1],
    [2, 1, 3, 5],
    [2, 3, 5, 7],
    [1, 4, 4, 1],
    [1, 8, 17, 1],
    [10, 10, 10, 1],
];

/// Upstream's cases.
pub(super) fn cases() -> Vec<Cont> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32, DType::F16, DType::BF16] {
        for use_view_slice in [true, false] {
            // Upstream leaves these out for another device's sake.
            if use_view_slice && matches!(dtype, DType::F16 | DType::BF16) {
                continue;
            }
            cases.extend(SHAPES.map(|ne| Cont {
                dtype,
                ne,
                use_view_slice,
            }));
        }
    }
    cases
}

/// Ours: slices of halves, other integers, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |dtype, use_view_slice| Cont {
        dtype,
        ne: [33, 3, 2, 2],
        use_view_slice,
    };
    let integers = [DType::I8, DType::I16, DType::I64].map(|dtype| case(dtype, false));
    let halves = [DType::F16, DType::BF16].into_iter();
    let halves = halves.flat_map(|dtype| {
        SHAPES.map(|ne| Cont {
            ne,
            ..case(dtype, true)
        })
    });
    let floats = [DType::F32, DType::F16, DType::BF16].into_iter();
    let floats = floats.flat_map(|dtype| [case(dtype, false), case(dtype, true)]);
    boxed(halves.chain(integers).collect())
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
            "CONT(type=f32,ne=[2,1,1,1],use_view_slice=1)"
        );
        assert_eq!(cases().len(), 36);
    }
}
