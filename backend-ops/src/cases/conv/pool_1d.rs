//! `POOL_1D`. Upstream's `test_pool1d`.

use ggml_rs::{DType, Pool, Pool1d, Tensor};

use super::{POOLS, pool_name};
use crate::case::{Case, Layout, Leaves, Measure, Relaxation, relaxed, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled1d {
    /// What becomes of a window.
    pub pool_type: Pool,
    /// Type of the signal.
    pub type_input: DType,
    /// Shape of the signal.
    pub ne_input: [usize; 4],
    /// Elements of a window.
    pub k0: usize,
    /// Elements from window to window.
    pub s0: usize,
    /// Elements by which windows stick out.
    pub p0: usize,
    /// How the signal lies in memory.
    pub layout: Layout,
    /// Whether the signal holds extreme values.
    pub extremes: bool,
}

impl Case for Pooled1d {
    fn op(&self) -> &'static str {
        "POOL_1D"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("pool_type", pool_name(self.pool_type))
            .with("type_input", self.type_input)
            .with("ne_input", self.ne_input)
            .with("k0", self.k0)
            .with("s0", self.s0)
            .with("p0", self.p0)
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

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_input.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let windows = Pool1d::new(self.pool_type, [self.k0])
            .stride([self.s0])
            .padding([self.p0]);
        self.layout.view(leaves[0])?.pool_1d(windows)
    }

    fn measure(&self) -> Measure {
        match self.extremes {
            true => Measure::ValuesAndNan,
            false => Measure::Values,
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let packed = Self {
            layout: Layout::Plain,
            ..self.clone()
        };
        let float = Self {
            type_input: DType::F32,
            ..self.clone()
        };
        let variants = [
            (self.layout.left_out("the signal"), packed),
            (format!("the signal is {}", self.type_input), float),
        ];
        relaxed(self, variants)
    }
}

/// All. Windows of 1 with a padding of 1 are all padding at both ends.
pub(super) fn cases() -> Vec<Pooled1d> {
    let mut cases = Vec::new();
    for pool_type in POOLS {
        let case = |type_input, ne_input, [k0, s0, p0]: [usize; 3]| Pooled1d {
            pool_type,
            type_input,
            ne_input,
            k0,
            s0,
            p0,
            layout: Layout::Plain,
            extremes: false,
        };
        for k0 in [1, 3] {
            for [s0, p0] in [[1, 0], [1, 1], [2, 0], [2, 1]] {
                for ne in [[10, 3, 2, 1], [11, 1, 3, 2], [128, 2, 1, 3]] {
                    cases.push(case(DType::F32, ne, [k0, s0, p0]));
                }
            }
        }
        // Ours.
        cases.extend(Layout::OTHERS.map(|layout| Pooled1d {
            layout,
            ..case(DType::F32, [33, 5, 3, 2], [4, 3, 2])
        }));
        for dtype in [DType::F32, DType::F16] {
            cases.push(case(dtype, [33, 5, 3, 2], [32, 1, 31]));
            cases.push(case(dtype, [7, 31, 1, 1], [2, 5, 0]));
            cases.push(case(dtype, [1; 4], [1, 1, 0]));
        }
        // Sums of extreme values depend on their order; windows of one are the values themselves.
        let k0 = if pool_type == Pool::Max { 3 } else { 1 };
        cases.push(Pooled1d {
            extremes: true,
            ..case(DType::F32, [40, 3, 1, 1], [k0, 1, 0])
        });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "POOL_1D(pool_type=avg,type_input=f32,ne_input=[10,3,2,1],k0=1,s0=1,p0=0)"
        );
    }
}
