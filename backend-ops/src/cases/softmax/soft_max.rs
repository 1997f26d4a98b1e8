//! `SOFT_MAX`: softmax along each row, with attention's scale, mask, slopes and sinks. Upstream's `test_soft_max`.

use ggml_rs::graph::SoftMax;
use ggml_rs::{DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Choices, Gradient, Leaves, Measure, smaller};
use crate::data::{Init, Operand, draw, uniform};
use crate::vars::Vars;

/// One SOFT_MAX case.
#[derive(Clone, Debug)]
pub struct SoftMaxCase {
    /// The mask, before dims 2 and 3 are repeated.
    ne: [usize; 4],
    mask: bool,
    sinks: bool,
    /// Type of the mask.
    m_prec: DType,
    /// How often the mask is repeated over dims 2 and 3.
    nr23: [usize; 2],
    scale: f32,
    max_bias: f32,
    inplace: bool,
    /// Ours: what is in the operands.
    values: Values,
}

/// What is in the operands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    Plain,
    /// Half of the mask minus infinity, the first row of it wholly: its result is NaN.
    Masked,
    /// Logits whose exponentials overflow unless the largest is subtracted.
    Large,
    /// Values that arithmetic treats specially among the logits.
    Extremes,
}

impl Values {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Masked => "masked",
            Self::Large => "large",
            Self::Extremes => "extremes",
        }
    }
}

impl SoftMaxCase {
    pub(crate) fn new(ne: [usize; 4], scale: f32) -> Self {
        Self {
            ne,
            mask: false,
            sinks: false,
            m_prec: DType::F32,
            nr23: [1, 1],
            scale,
            max_bias: 0.0,
            inplace: false,
            values: Values::Plain,
        }
    }

    fn shape(&self) -> [usize; 4] {
        let [n0, n1, n2, n3] = self.ne;
        [n0, n1, n2 * self.nr23[0], n3 * self.nr23[1]]
    }

    fn logits(&self) -> Operand {
        let a = Operand::new("a", DType::F32, self.shape());
        match self.values {
            Values::Large => a.within(1e4).trained(),
            Values::Extremes => a.init(Init::Extremes),
            _ => a.trained(),
        }
    }
}

impl Case for SoftMaxCase {
    fn op(&self) -> &'static str {
        "SOFT_MAX"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("mask", self.mask)
            .with("sinks", self.sinks)
            .with("m_prec", self.m_prec)
            .with("nr23", self.nr23)
            .with("scale", self.scale)
            .with("max_bias", self.max_bias)
            .with("inplace", self.inplace)
            .with_unless_default("values", self.values.name(), Values::Plain.name())
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![self.logits()];
        if self.mask {
            let mask = Operand::new("mask", self.m_prec, self.ne);
            operands.push(match self.values {
                Values::Masked => mask.init(Init::Drawn(half_masked)),
                _ => mask,
            });
        }
        if self.sinks {
            let sinks = Operand::new("sinks", DType::F32, [self.shape()[2], 1, 1, 1]);
            operands.push(sinks.trained());
        }
        operands
    }

    /// A sink's share is what the other elements' sum leaves of 1: about one in as many as they are, and the sum rounds.
    fn gradient(&self) -> Gradient {
        let default = Gradient::default();
        match self.sinks {
            true => default.tolerance(default.tolerance.max(1e-7 * self.ne[0] as f64)),
            false => default,
        }
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne.iter_mut().chain(&mut case.nr23).collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let options = SoftMax {
            mask: self.mask.then(|| leaves[1]),
            sinks: self.sinks.then(|| leaves[1 + usize::from(self.mask)]),
            scale: self.scale,
            max_bias: self.max_bias,
        };
        match self.inplace {
            true => leaves[0].soft_max_ext_inplace(options),
            false => leaves[0].soft_max_ext(options),
        }
    }

    /// Upstream's: rows of 1024 with slopes come near the default.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        1e-6
    }

    fn measure(&self) -> Measure {
        match self.values {
            Values::Masked | Values::Extremes => Measure::ValuesAndNan,
            _ => Measure::Values,
        }
    }
}

/// Half minus infinity at random, the first row wholly.
fn half_masked(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let n = operand.ne.iter().product();
    let hidden = draw(rng, n, 2);
    let mut mask = uniform(rng, n, [-1.0, 1.0]);
    for (at, (value, hidden)) in mask.iter_mut().zip(hidden).enumerate() {
        if hidden == 1 || at < operand.ne[0] {
            *value = f32::NEG_INFINITY;
        }
    }
    mask
}

/// A mask and sinks, as upstream combines them.
const MASKS_AND_SINKS: [(bool, bool); 4] =
    [(false, false), (false, true), (true, false), (true, true)];

/// Upstream's grid of short and long, few and many rows.
fn grid() -> Vec<SoftMaxCase> {
    let mut cases = Vec::new();
    for (mask, sinks) in MASKS_AND_SINKS {
        for max_bias in [0.0, 8.0] {
            if !mask && max_bias > 0.0 {
                continue;
            }
            for scale in [1.0, 0.1] {
                for (n0, n1) in [(16, 16), (16, 1024), (1024, 16), (1024, 1024)] {
                    let types = if mask { &MASK_TYPES[..] } else { &[DType::F32] };
                    for &m_prec in types {
                        let case = |ne, nr23| SoftMaxCase {
                            mask,
                            sinks,
                            m_prec,
                            nr23,
                            max_bias,
                            ..SoftMaxCase::new(ne, scale)
                        };
                        cases.push(case([n0, n1, 1, 1], [1, 1]));
                        cases.push(case([n0 - 1, n1 - 1, 1, 1], [1, 1]));
                        if mask && n0 == 16 && n1 == 16 {
                            cases.push(case([n0, n1, 1, 3], [3, 1]));
                            cases.push(case([n0 - 1, n1 - 1, 1, 1], [2, 3]));
                        }
                    }
                }
            }
        }
        cases.extend(MASK_TYPES.map(|m_prec| SoftMaxCase {
            mask,
            sinks,
            m_prec,
            inplace: true,
            ..SoftMaxCase::new([16, 2, 32, 1], 0.1)
        }));
    }
    cases
}

const MASK_TYPES: [DType; 2] = [DType::F32, DType::F16];

/// Upstream's: the grid, many heads, and rows of a vocabulary's length.
pub(super) fn cases() -> Vec<SoftMaxCase> {
    let mut cases = grid();
    let with = |ne, (mask, sinks), m_prec, max_bias| SoftMaxCase {
        mask,
        sinks,
        m_prec,
        max_bias,
        ..SoftMaxCase::new(ne, 0.1)
    };
    for (n0, with_which, m_prec, max_bias) in [
        (16, (true, true), DType::F32, 0.0),
        (16, (true, false), DType::F16, 0.0),
        (16, (false, true), DType::F32, 0.0),
        (32, (true, true), DType::F32, 0.0),
        (32, (true, false), DType::F16, 0.0),
        (32, (true, true), DType::F32, 8.0),
        (32, (true, true), DType::F16, 8.0),
    ] {
        cases.push(with([n0, 2, 32, 1], with_which, m_prec, max_bias));
    }
    cases.extend(MASK_TYPES.map(|m_prec| with([200_001, 2, 3, 1], (true, true), m_prec, 8.0)));
    for (n0, n1) in [(200_000, 1), (200_000, 4), (643_251, 3)] {
        cases.push(SoftMaxCase::new([n0, n1, 1, 1], 1.0));
    }
    cases
}

/// Rows around the widths of vectors and simdgroups, heads that are no power of two, rows that are masked, logits that overflow
/// without the largest subtracted, special values.
pub(super) fn ours() -> Vec<SoftMaxCase> {
    let mut cases = Vec::new();
    for n in [1, 2, 3, 4, 31, 32, 33, 100, 127, 129] {
        cases.push(SoftMaxCase::new([n, 3, 2, 2], 0.5));
        cases.push(SoftMaxCase {
            mask: true,
            sinks: true,
            max_bias: 8.0,
            nr23: [12, 1],
            ..SoftMaxCase::new([n, 3, 1, 2], 0.5)
        });
    }
    for values in [Values::Large, Values::Extremes] {
        cases.push(SoftMaxCase {
            values,
            ..SoftMaxCase::new([33, 40, 1, 1], 1.0)
        });
    }
    for (m_prec, sinks) in [(DType::F32, false), (DType::F16, false), (DType::F32, true)] {
        for n in [32, 67] {
            cases.push(SoftMaxCase {
                mask: true,
                sinks,
                m_prec,
                values: Values::Masked,
                ..SoftMaxCase::new([n, 5, 2, 1], 0.5)
            });
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "SOFT_MAX(type=f32,ne=[16,16,1,1],mask=0,sinks=0,m_prec=f32,nr23=[1,1],scale=1.000000,max_bias=0.000000,inplace=0)"
        );
    }

    #[test]
    fn a_row_is_masked_wholly_and_others_in_part() {
        use rand_chacha::rand_core::SeedableRng;
        let operand = Operand::new("mask", DType::F32, [64, 4, 1, 1]);
        let mask = half_masked(&operand, &mut ChaCha8Rng::from_seed([1; 32]));
        let hidden = |row: &[f32]| row.iter().filter(|value| value.is_infinite()).count();
        assert_eq!(hidden(&mask[..64]), 64);
        for row in mask[64..].chunks(64) {
            assert!((10..54).contains(&hidden(row)));
        }
    }
}
