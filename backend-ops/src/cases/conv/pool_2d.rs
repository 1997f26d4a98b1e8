//! `POOL_2D`, upstream's `test_pool2d`, and `POOL_2D_BACK`, which upstream reaches only through gradients.

use ggml_rs::{DType, Pool, Pool2d, Tensor};

use super::{POOLS, pool_name};
use crate::case::{Case, Layout, Leaves, Measure};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled2d {
    /// What becomes of a window.
    pub pool_type: Pool,
    /// Type of the image.
    pub type_input: DType,
    /// Shape of the image.
    pub ne_input: [usize; 4],
    /// Elements of a window.
    pub k: [usize; 2],
    /// Elements from window to window.
    pub s: [usize; 2],
    /// Elements by which windows stick out.
    pub p: [usize; 2],
    /// How the image lies in memory.
    pub layout: Layout,
    /// Whether the image holds extreme values.
    pub extremes: bool,
}

impl Pooled2d {
    fn new(pool_type: Pool, k: [usize; 2], s: [usize; 2], p: [usize; 2]) -> Self {
        Self {
            pool_type,
            type_input: DType::F32,
            ne_input: [10, 10, 3, 1],
            k,
            s,
            p,
            layout: Layout::Plain,
            extremes: false,
        }
    }

    fn windows(&self) -> Pool2d {
        Pool2d::new(self.pool_type, self.k)
            .stride(self.s)
            .padding(self.p)
    }
}

impl Case for Pooled2d {
    fn op(&self) -> &'static str {
        "POOL_2D"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("pool_type", pool_name(self.pool_type))
            .with("type_input", self.type_input)
            .with("ne_input", self.ne_input)
            .with("k0", self.k[0])
            .with("k1", self.k[1])
            .with("s0", self.s[0])
            .with("s1", self.s[1])
            .with("p0", self.p[0])
            .with("p1", self.p[1])
            .with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let input = self
            .layout
            .stored(Operand::new("input", self.type_input, self.ne_input));
        vec![match self.extremes {
            true => input.init(Init::Extremes),
            false => input.trained(),
        }]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        self.layout.view(leaves[0])?.pool_2d(self.windows())
    }

    fn measure(&self) -> Measure {
        match self.extremes {
            true => Measure::ValuesAndNan,
            false => Measure::Values,
        }
    }
}

/// The gradient of a case of POOL_2D.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled2dBack(Pooled2d);

impl Case for Pooled2dBack {
    fn op(&self) -> &'static str {
        "POOL_2D_BACK"
    }

    fn params(&self) -> String {
        self.0.params()
    }

    fn operands(&self) -> Vec<Operand> {
        let Pooled2d {
            ne_input, k, s, p, ..
        } = self.0;
        let mut pooled = ne_input;
        for dim in 0..2 {
            pooled[dim] = super::outputs(ne_input[dim], k[dim], [s[dim], p[dim], 1]);
        }
        // Different values: which of two equal maxima gets the gradient is a matter of taste.
        vec![
            Operand::new("grad", DType::F32, pooled),
            Operand::new("input", self.0.type_input, ne_input),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].pool_2d_back(leaves[1], self.0.windows())
    }
}

/// All. Windows of 1 with a padding of 1 are all padding at both ends.
pub(super) fn cases() -> Vec<Pooled2d> {
    let mut cases = Vec::new();
    for pool_type in POOLS {
        for k in pairs([1, 3]) {
            for s in pairs([1, 2]) {
                cases.extend(pairs([0, 1]).map(|p| Pooled2d::new(pool_type, k, s, p)));
            }
        }
        cases.extend(ours(pool_type));
    }
    cases
}

/// All are ours.
pub(super) fn back_cases() -> Vec<Pooled2dBack> {
    let mut cases = Vec::new();
    for pool_type in POOLS {
        for (ne_input, k, s, p) in [
            ([10, 10, 3, 1], [3, 3], [1, 1], [1, 1]),
            ([11, 7, 2, 3], [2, 3], [2, 1], [0, 2]),
            // Gaps between windows, and windows that end before the image.
            ([17, 9, 1, 2], [2, 2], [5, 3], [1, 0]),
            ([1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
        ] {
            cases.push(Pooled2dBack(Pooled2d {
                ne_input,
                ..Pooled2d::new(pool_type, k, s, p)
            }));
        }
    }
    cases
}

fn pairs(of: [usize; 2]) -> [[usize; 2]; 4] {
    let [a, b] = of;
    [[a, a], [a, b], [b, a], [b, b]]
}

fn ours(pool_type: Pool) -> Vec<Pooled2d> {
    let ragged = Pooled2d {
        ne_input: [33, 7, 3, 2],
        ..Pooled2d::new(pool_type, [4, 2], [3, 1], [2, 1])
    };
    let mut cases: Vec<Pooled2d> = Layout::OTHERS
        .map(|layout| Pooled2d {
            layout,
            ..ragged.clone()
        })
        .into();
    for type_input in [DType::F32, DType::F16] {
        cases.push(Pooled2d {
            type_input,
            ..ragged.clone()
        });
    }
    cases.push(Pooled2d {
        ne_input: [1; 4],
        ..Pooled2d::new(pool_type, [1, 1], [1, 1], [0, 0])
    });
    // Sums of extreme values depend on their order; windows of one are the values themselves.
    let k = if pool_type == Pool::Max { 3 } else { 1 };
    cases.push(Pooled2d {
        extremes: true,
        ne_input: [40, 7, 1, 1],
        ..Pooled2d::new(pool_type, [k, k], [1, 1], [0, 0])
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[3].name(),
            "POOL_2D(pool_type=avg,type_input=f32,ne_input=[10,10,3,1],k0=1,k1=1,s0=1,s1=1,p0=1,p1=1)"
        );
        assert_eq!(
            back_cases()[0].name(),
            "POOL_2D_BACK(pool_type=avg,type_input=f32,ne_input=[10,10,3,1],k0=3,k1=3,s0=1,s1=1,p0=1,p1=1)"
        );
    }
}
