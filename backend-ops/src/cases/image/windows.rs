//! `WIN_PART` and `WIN_UNPART`: an image cut into square windows, and put together again. Upstream has no cases.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, Measure, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case of either.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Put together, not cut.
    pub back: bool,
    /// Shape of the image.
    pub ne: [usize; 4],
    /// Elements of a window in each direction.
    pub w: usize,
    /// How the operand lies in memory.
    pub layout: Layout,
}

impl Windows {
    fn windows(&self) -> [usize; 4] {
        let [channels, width, height, _] = self.ne;
        let count = width.div_ceil(self.w) * height.div_ceil(self.w);
        [channels, self.w, self.w, count]
    }
}

impl Case for Windows {
    fn op(&self) -> &'static str {
        if self.back { "WIN_UNPART" } else { "WIN_PART" }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne", self.ne)
            .with("w", self.w)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    /// Any values are copied.
    fn operands(&self) -> Vec<Operand> {
        let ne = if self.back { self.windows() } else { self.ne };
        vec![
            self.layout
                .stored(Operand::new("a", DType::F32, ne))
                .init(Init::Extremes),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let a = self.layout.view(leaves[0])?;
        match self.back {
            true => a.win_unpart(self.ne[1], self.ne[2]),
            false => a.win_part(self.w),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }

    fn measure(&self) -> Measure {
        Measure::ValuesAndNan
    }
}

/// All are ours.
pub(super) fn cases() -> Vec<Windows> {
    let mut cases = Vec::new();
    for back in [false, true] {
        let case = |ne, w| Windows {
            back,
            ne,
            w,
            layout: Layout::Plain,
        };
        // The last is as Segment Anything has it: windows that stick out on both sides.
        for (ne, w) in [
            ([1, 1, 1, 1], 1),
            ([3, 5, 7, 1], 2),
            ([33, 4, 6, 1], 3),
            ([5, 3, 2, 1], 8),
            ([64, 64, 64, 1], 14),
        ] {
            cases.push(case(ne, w));
        }
        cases.extend(Layout::OTHERS.map(|layout| Windows {
            layout,
            ..case([6, 9, 7, 1], 4)
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_name_the_image() {
        let [part, unpart] = [1, 9].map(|i| cases()[i].name());
        assert_eq!(part, "WIN_PART(ne=[3,5,7,1],w=2)");
        assert_eq!(unpart, "WIN_UNPART(ne=[3,5,7,1],w=2)");
    }
}
