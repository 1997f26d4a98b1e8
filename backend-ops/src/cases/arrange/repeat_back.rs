//! `REPEAT_BACK`: the sum of all copies, REPEAT's gradient. Upstream's `test_repeat_back`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One REPEAT_BACK case.
#[derive(Clone, Debug)]
pub struct RepeatBack {
    dtype: DType,
    ne: [usize; 4],
    nr: [usize; 4],
    /// Whether the operand is half as large as what it is a window of, in every dimension that repeats.
    v: bool,
}

impl Case for RepeatBack {
    fn op(&self) -> &'static str {
        "REPEAT_BACK"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("nr", self.nr)
            .with("v", self.v)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let ne = std::array::from_fn(|i| self.ne[i] * self.nr[i]);
        vec![Operand::new("src", self.dtype, ne)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne.iter_mut().chain(&mut case.nr).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let src = match self.v {
            true => {
                let [_, nb @ ..] = leaves[0].strides();
                let half = |i| match self.nr[i] {
                    1 => self.ne[i],
                    repeats => self.ne[i] * repeats / 2,
                };
                leaves[0].view(std::array::from_fn::<_, 4, _>(half), nb, 0)?
            }
            false => leaves[0],
        };
        let like = leaves.graph().empty("target", self.dtype, self.ne)?;
        src.repeat_back(like)
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<RepeatBack> {
    const REPEATS: [[usize; 4]; 5] = [
        [1, 1, 1, 1],
        [2, 1, 1, 1],
        [1, 2, 1, 1],
        [1, 1, 2, 1],
        [1, 1, 1, 2],
    ];
    let cases = [false, true].into_iter().flat_map(|v| {
        REPEATS.map(|nr| RepeatBack {
            dtype: DType::F32,
            ne: [8, 6, 4, 2],
            nr,
            v,
        })
    });
    cases.collect()
}

/// Ours: sums of many, ragged rows, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |ne, nr| RepeatBack {
        dtype: DType::F32,
        ne,
        nr,
        v: false,
    };
    let many = case([33, 3, 2, 1], [2, 3, 2, 2]);
    let plain = vec![
        case([1, 1, 1, 1], [33, 5, 2, 2]),
        case([33, 1, 1, 1], [1, 31, 3, 1]),
        many.clone(),
        RepeatBack {
            v: true,
            ..case([6, 4, 2, 2], [4, 4, 2, 2])
        },
    ];
    boxed(plain)
        .chain(laid_out([many.clone()], Layout::OTHERS))
        .chain(with_extremes([many]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[9].name(),
            "REPEAT_BACK(type=f32,ne=[8,6,4,2],nr=[1,1,1,2],v=1)"
        );
    }
}
