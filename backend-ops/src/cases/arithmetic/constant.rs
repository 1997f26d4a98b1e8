//! `FILL` and `ARANGE`: values that come from parameters alone. Upstream's `test_fill` and `test_arange`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, smaller, with_extremes,
};
use crate::data::Operand;
use crate::vars::Vars;

/// One FILL case.
#[derive(Clone, Debug)]
pub struct Fill {
    dtype: DType,
    ne: [usize; 4],
    c: f32,
    /// Ours: whether the values are written over the operand.
    in_place: bool,
}

impl Case for Fill {
    fn op(&self) -> &'static str {
        "FILL"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("c", self.c)
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne).trained()]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.in_place {
            true => leaves[0].fill_inplace(self.c),
            false => leaves[0].fill(self.c),
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// One ARANGE case.
#[derive(Clone, Debug)]
pub struct Arange {
    start: f32,
    stop: f32,
    step: f32,
}

impl Case for Arange {
    fn op(&self) -> &'static str {
        "ARANGE"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("start", self.start)
            .with("stop", self.stop)
            .with("step", self.step)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        Vec::new()
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves.graph().arange(self.start, self.stop, self.step)
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    let fills = [
        (0.0, [10, 10, 4, 3]),
        (2.0, [303, 207, 11, 3]),
        (-152.0, [800, 600, 4, 4]),
        (3.5, [2048, 512, 2, 2]),
    ];
    let fills = fills.map(|(c, ne)| Fill {
        dtype: DType::F32,
        ne,
        c,
        in_place: false,
    });
    let ranges = [10.0, 1_048_576.0].map(|stop| Arange {
        start: 0.0,
        stop,
        step: 1.0,
    });
    boxed(ranges.to_vec())
        .chain(boxed(fills.to_vec()))
        .collect()
}

/// Ours: halves, in place, other layouts, extreme values; ranges that begin elsewhere, steps that are no whole numbers.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let fill = |dtype, ne| Fill {
        dtype,
        ne,
        c: -0.75,
        in_place: false,
    };
    let (floats, halves) = (
        fill(DType::F32, [33, 3, 2, 1]),
        fill(DType::F16, [33, 3, 2, 1]),
    );
    let infinite = Fill {
        c: f32::NEG_INFINITY,
        ..floats.clone()
    };
    let in_place = Fill {
        in_place: true,
        ..floats.clone()
    };
    let ragged = [[1, 1, 1, 1], [31, 1, 1, 1], [1025, 1, 1, 1]].map(|ne| fill(DType::F32, ne));
    let ranges = [
        (-3.0, 30.0, 1.0),
        (0.5, 1.0, 0.125),
        (-1.0, -0.5, 8.0),
        (0.0, 1.0, 0.001),
    ];
    let ranges = ranges.map(|(start, stop, step)| Arange { start, stop, step });
    boxed(ragged.to_vec())
        .chain(boxed(vec![halves, in_place, infinite]))
        .chain(laid_out([floats.clone()], Layout::OTHERS))
        // What is written over has no influence.
        .chain(with_extremes([floats]))
        .chain(boxed(ranges.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(|case| case.name()).collect();
        assert_eq!(
            names[0],
            "ARANGE(type=f32,start=0.000000,stop=10.000000,step=1.000000)"
        );
        assert_eq!(names[4], "FILL(type=f32,ne=[800,600,4,4],c=-152.000000)");
    }
}
