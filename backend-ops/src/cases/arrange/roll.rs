//! `ROLL`: what leaves on one side enters on the other. Upstream's `test_roll`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, with_extremes,
};
use crate::data::Operand;
use crate::vars::Vars;

/// Upstream's only shape.
const NE: [usize; 4] = [10, 5, 4, 3];

/// One ROLL case.
#[derive(Clone, Debug)]
pub struct Roll {
    shifts: [i32; 4],
    /// Ours where it is not upstream's.
    ne: [usize; 4],
    /// Ours where it is not F32.
    dtype: DType,
}

impl Case for Roll {
    fn op(&self) -> &'static str {
        "ROLL"
    }

    fn params(&self) -> String {
        // Upstream's names, which skip a number.
        let names = ["shift0", "shift1", "shift3", "shift4"].into_iter();
        let vars = names.zip(self.shifts);
        vars.fold(Vars::new(), |vars, (name, shift)| vars.with(name, shift))
            .with_unless_default("ne", self.ne, NE)
            .with_unless_default("type", self.dtype, DType::F32)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne)]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].roll(self.shifts)
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

fn roll(ne: [usize; 4], shifts: [i32; 4]) -> Roll {
    Roll {
        shifts,
        ne,
        dtype: DType::F32,
    }
}

/// Upstream's case.
pub(super) fn cases() -> Vec<Roll> {
    vec![roll(NE, [3, -2, 1, -1])]
}

/// Ours: nothing moved, one dimension, the longest ways, long rows, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let one = roll([33, 3, 4, 2], [-7, 2, -3, 1]);
    let half = Roll {
        dtype: DType::F16,
        ..one.clone()
    };
    let plain = vec![
        roll([1; 4], [0; 4]),
        roll(NE, [9, 4, 3, 2]),
        roll(NE, [-9, -4, -3, -2]),
        roll([33, 2, 1, 1], [32, 0, 0, 0]),
        roll([1025, 2, 1, 1], [-1, 1, 0, 0]),
        half,
    ];
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
            cases()[0].name(),
            "ROLL(shift0=3,shift1=-2,shift3=1,shift4=-1)"
        );
    }
}
